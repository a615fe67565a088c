"""The wish to stop a run, seen by everything that waits."""

import math
import os
import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

TELL_SECONDS = 5.0


class StopSignal:
    """Set once, by a signal or by the flow; `reason` says by what."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._num_busy = 0
        self._quiet_since = -math.inf
        self.reason = ""

    def request(self, reason: str) -> None:
        """Ask everything that waits to stop; the first reason stays."""
        if not self._event.is_set():
            self.reason = reason
            self._event.set()

    @property
    def requested(self) -> bool:
        """Whether a stop was asked for."""
        return self._event.is_set()

    @property
    def is_busy(self) -> bool:
        """Whether something is at work that must end by itself, such as an attempt that saves its progress.

        For a while after its end it counts too: what it has to tell is still on its way.
        """
        with self._lock:
            return self._num_busy > 0 or time.monotonic() - self._quiet_since < TELL_SECONDS

    @contextmanager
    def busy(self) -> Generator[None]:
        """Marks such work."""
        with self._lock:
            self._num_busy += 1
        try:
            yield
        finally:
            with self._lock:
                self._num_busy -= 1
                self._quiet_since = time.monotonic()

    def wait(self, seconds: float) -> bool:
        """Sleep for at most `seconds`; True as soon as a stop is requested."""
        return self._event.wait(seconds)


@contextmanager
def stop_on_signals(stop: StopSignal) -> Generator[None]:
    """Turn the first SIGINT or SIGTERM into a request to stop; a second one ends this process at once.

    What it started ends with it then, by the life lines, without saving. Outside the main thread, where Python allows
    no handlers, this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.getsignal(number) for number in numbers}
    received = False

    def handle(number: int, _frame: FrameType | None) -> None:
        # The stop itself may have been requested by something else: what has begun to save then is not cut off.
        nonlocal received
        if received:
            os._exit(128 + number)
        received = True
        stop.request(f"received {signal.Signals(number).name}")

    for number in numbers:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def exit_code_of(reason: str) -> int:
    """What a shell expects of a process that ended on the signal that a reason to stop names, else on SIGTERM."""
    name = reason.rpartition(" ")[2]
    return 128 + (signal.Signals[name] if name in signal.Signals.__members__ else signal.SIGTERM)
