"""Why an attempt may not go on under its lease, told from the thread that renews it."""

from stages.errors import LeaseLostError, StorageError
from tasks.causes import Cause


class LostLease:
    """Set once, with the reason, when the lease is lost."""

    def __init__(self) -> None:
        self._error: LeaseLostError | StorageError | None = None

    def set(self, error: LeaseLostError | StorageError) -> None:
        """The lease is lost: to another attempt, or because the store was silent for too long."""
        self._error = error

    def reason(self) -> tuple[Cause, str] | None:
        """The cause and its text; None while the lease is held."""
        if self._error is None:
            return None
        return "fenced" if isinstance(self._error, LeaseLostError) else "storage", str(self._error)
