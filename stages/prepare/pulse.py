"""Signs of life while rows are read and written, and whether to stop."""

import time

from stages.contract import StageContext
from stages.errors import PreemptedError

_ROWS = 100
_SECONDS = 1.0


class Pulse:
    """Counts rows; now and then it says how many, and looks whether the stage was asked to stop."""

    def __init__(self, context: StageContext, total: int) -> None:
        """`total` is how many rows there will be, 0 where nobody knows."""
        self._context = context
        self._total = total
        self._done = 0
        self._beaten = 0.0
        self._beat()

    def tick(self) -> None:
        """One more row.

        Raises:
            PreemptedError: the stage was asked to stop.
        """
        self._done += 1
        if self._done % _ROWS == 0:
            if self._context.should_stop():
                raise PreemptedError("stopped while preparing rows; nothing was written")
            if time.monotonic() - self._beaten > _SECONDS:
                self._beat()

    def finish(self) -> None:
        """All is done."""
        self._total = self._done
        self._beat()

    def _beat(self) -> None:
        self._beaten = time.monotonic()
        self._context.beat(self._done, max(self._total, self._done), {})
