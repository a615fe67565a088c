"""Where Temper keeps what belongs to the user of this machine, after the XDG base directory specification."""

import os
from pathlib import Path


def cache_dir() -> Path:
    """Folder of what can be made again: downloaded sources, compiled programs, scratch."""
    return _base("XDG_CACHE_HOME", ".cache") / "temper"


def state_dir() -> Path:
    """Folder of what must be seen by all runs of this user on this host: device locks."""
    return _base("XDG_STATE_HOME", ".local/state") / "temper"


def _base(variable: str, fallback: str) -> Path:
    value = os.environ.get(variable, "")
    return Path(value) if value.startswith("/") else Path.home() / fallback
