"""The life line: a process group that ends when the other end of its stdin is closed, however that happened."""

import os
import select
import signal
import stat
from pathlib import Path
from typing import NoReturn


def hold() -> bool:
    """Have this process's group killed as soon as its stdin reaches end of file.

    A forked process watches the pipe, so native code that never lets a Python thread run cannot delay the kill.
    Nothing is watched where stdin is no pipe or the group belongs to someone else, as under a shell: then False is
    returned. Call it first, before any thread is started. Afterwards stdin is empty.
    """
    if not _is_own_pipe():
        return False
    alive, kept_open = os.pipe()
    if os.fork() == 0:
        os.close(kept_open)
        _watch(alive)
    os.close(alive)
    with Path(os.devnull).open("rb") as empty:
        os.dup2(empty.fileno(), 0)
    return True


def _is_own_pipe() -> bool:
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) and os.getpgrp() == os.getpid()


def _watch(alive: int) -> NoReturn:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.closerange(1, alive)
    os.closerange(alive + 1, os.sysconf("SC_OPEN_MAX"))
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(alive, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll()}
        if alive in ready:
            os._exit(0)
        if 0 in ready and not os.read(0, 4096):
            os.killpg(0, signal.SIGKILL)
