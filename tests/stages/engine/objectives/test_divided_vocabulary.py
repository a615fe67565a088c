"""A process sees as many devices as it was started with: the tests of `divided_vocabulary.py` need one of their own."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent / "divided_vocabulary.py"


def test_what_four_devices_compute_together_passes_its_tests() -> None:
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "4", "JAX_DISABLE_MOST_OPTIMIZATIONS": "true"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(TESTS)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, env=environment)
    assert ended.returncode == 0, ended.stdout + ended.stderr
