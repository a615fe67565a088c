"""What every test process, and each child that it starts, has in its environment."""

import os
from pathlib import Path

PROGRAMS = Path(__file__).parents[1] / ".pytest_cache" / "jax"

# Stages start many processes that compile the same small programs.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(PROGRAMS))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("DO_NOT_TRACK", "1")
