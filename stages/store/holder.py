"""Which process holds a lease, and whether it is surely gone."""

import os
import socket
from pathlib import Path

from stages.contract import Strict


class Holder(Strict):
    """One process of one machine, distinct from a later process with the same number."""

    host: str
    boot_id: str
    """Changes with every start of the machine; empty where the system has none."""
    pid_namespace: str
    """Process numbers mean something only within it: containers may share a host name and a boot id."""
    pid: int
    pid_start: str
    """Start time of the process in clock ticks after boot; empty where the system does not tell."""
    run_url: str | None
    """Where to watch the run that holds the lease."""

    @property
    def shown(self) -> str:
        """What people know it by: the page of its run, or its process."""
        return self.run_url or f"process {self.pid} on {self.host}"


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _process(pid: int) -> tuple[str, str] | None:
    """State letter and start time, or None when the process is gone or hidden from this user."""
    # The command's name is in parentheses and may hold anything; state is the first field after it, start the 20th.
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (fields[0], fields[19]) if len(fields) >= 20 else None


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def this_holder(run_url: str | None = None) -> Holder:
    """The calling process."""
    process = _process(os.getpid())
    return Holder(
        host=socket.gethostname(),
        boot_id=_read("/proc/sys/kernel/random/boot_id"),
        pid_namespace=_namespace(),
        pid=os.getpid(),
        pid_start=process[1] if process else "",
        run_url=run_url,
    )


def is_gone(holder: Holder, observer: Holder) -> bool:
    """Whether `holder` certainly ended, which only a process of the same machine and namespace can know."""
    same = (holder.host, holder.boot_id, holder.pid_namespace) == (
        observer.host,
        observer.boot_id,
        observer.pid_namespace,
    )
    known = holder.boot_id != "" and holder.pid_namespace != "" and holder.pid_start != ""
    if not same or not known:
        return False
    process = _process(holder.pid)
    if process is None:
        return not _exists(holder.pid)
    state, start = process
    return state in "ZX" or start != holder.pid_start
