"""A stage as several processes on this machine that find each other on loopback, watched and stopped as one."""

import math
import queue
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

from stages.contract import Beat, ClusterRequest, StageResult
from tasks.launchers.launcher import Launch
from tasks.launchers.local import LocalChild

CLEAN_ENDS = {0, 75}
"""Return codes of a process that needs no other to stop: done, and stopped with its progress saved."""
OTHERS_SECONDS = 10.0
"""From asking the others to stop, once one has failed, to killing them: they can save nothing without it."""


class LocalGroup:
    """Members of one stage, each a `LocalChild` with its own process group and life line.

    Member 0 leads: its beats are the stage's, and its result is when all are done. Lines of the others say which one
    they are from. When one fails the others are stopped, and the end is that of the first that failed.
    """

    def __init__(self, launch: Launch) -> None:
        self._port = _ReservedPort()
        self._members: list[LocalChild] = []
        self._ended = queue.SimpleQueue[int]()
        self._running = launch.num_processes
        self._failed: int | None = None
        self._kill_at = math.inf
        try:
            for member in range(launch.num_processes):
                self._members.append(LocalChild(_of_member(launch, member, self._port.address)))
        except OSError:
            self.close()
            raise
        for member in range(launch.num_processes):
            threading.Thread(target=self._await_end, args=(member,), daemon=True).start()

    def wait(self, seconds: float) -> int | None:
        deadline = time.monotonic() + seconds
        while self._running:
            if time.monotonic() >= self._kill_at:
                self.kill()
            try:
                self._note_end(self._ended.get(timeout=max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                return None
        return self._members[self._decisive()].poll()

    def terminate(self) -> None:
        for member in self._members:
            member.terminate()

    def kill(self) -> None:
        for member in self._members:
            member.kill()

    def close(self) -> None:
        self.kill()
        for member in self._members:
            member.close()
        self._port.release()

    def result(self) -> StageResult | None:
        return self._members[self._decisive()].result()

    @property
    def blamed(self) -> str:
        return "" if self._failed is None else f"process {self._failed} of {len(self._members)}: "

    def _await_end(self, member: int) -> None:
        """Ends come in their order, so that what follows from a failure is not taken for it."""
        self._members[member].await_end()
        self._ended.put(member)

    def _note_end(self, member: int) -> None:
        self._running -= 1
        if self._failed is None and self._members[member].poll() not in CLEAN_ENDS:
            self._failed = member
            self._kill_at = time.monotonic() + OTHERS_SECONDS
            self.terminate()

    def _decisive(self) -> int:
        """The member whose end is that of the stage."""
        if self._failed is not None:
            return self._failed
        return next((index for index, member in enumerate(self._members) if member.poll()), 0)


class _ReservedPort:
    """A free port of loopback that the system gives to nobody else; who asks for it by number may listen on it."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind(("127.0.0.1", 0))
        host, port = self._socket.getsockname()
        self.address = f"{host}:{port}"

    def release(self) -> None:
        self._socket.close()


def _of_member(launch: Launch, member: int, coordinator: str) -> Launch:
    cluster = ClusterRequest(coordinator=coordinator, num_processes=launch.num_processes, process_id=member)
    scratch = Path(launch.request.scratch) / f"process{member}"
    request = launch.request.model_copy(update={"cluster": cluster, "scratch": str(scratch)})
    if member == 0:
        return replace(launch, request=request)
    return replace(launch, request=request, on_line=lambda line: launch.on_line(f"[{member}] {line}"), on_beat=_ignore)


def _ignore(beat: Beat) -> None:
    """A sign of life of a member that does not lead: it waits for the others anyway."""
    del beat
