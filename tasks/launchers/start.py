"""Which launcher runs a stage."""

from tasks.launchers.launcher import Child, Launch
from tasks.launchers.local import LocalChild
from tasks.launchers.local_group import LocalGroup


def start(launch: Launch) -> Child:
    """Starts a stage on this machine. Raises `OSError` if the interpreter cannot be run."""
    return LocalChild(launch) if launch.num_processes == 1 else LocalGroup(launch)
