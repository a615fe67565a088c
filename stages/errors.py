"""The errors that cross a boundary, each with the exit code of the stage process that ends on it."""

from typing import ClassVar


class TemperError(Exception):
    """An error with a meaning for the user; the message is shown without a traceback."""

    exit_code: ClassVar[int] = 70


class UserError(TemperError):
    """Bad data or configuration: running again without a change would fail again."""

    exit_code = 65


class StorageError(TemperError):
    """The store or a source could not be read or written; trying again may help."""

    exit_code = 74


class CorruptArtifactError(StorageError):
    """A stored input's bytes are not those of its manifest; its producer must run again."""

    def __init__(self, message: str, stage: str, key: str) -> None:
        super().__init__(message)
        self.stage = stage
        self.key = key


class PreemptedError(TemperError):
    """The stage was asked to stop and saved its progress first."""

    exit_code = 75


class LeaseLostError(TemperError):
    """Another attempt took this stage's lease; this one must stop and commit nothing."""
