"""Where Temper keeps what belongs to the user of this machine, after the XDG base directory specification."""

import os
from pathlib import Path

from stages.store.holder import this_holder


def cache_dir() -> Path:
    """Folder of what can be made again: downloaded sources, compiled programs, scratch."""
    return _base("XDG_CACHE_HOME", ".cache") / "temper"


def state_dir() -> Path:
    """Folder of what must be seen by all runs of this user."""
    return _base("XDG_STATE_HOME", ".local/state") / "temper"


def locks_dir() -> Path:
    """Folder of the locks on this host's devices: another host that shares the home has another one."""
    here = this_holder()
    return state_dir() / "locks" / (here.boot_id or here.host)


def _base(variable: str, fallback: str) -> Path:
    value = os.environ.get(variable, "")
    return Path(value) if value.startswith("/") else Path.home() / fallback
