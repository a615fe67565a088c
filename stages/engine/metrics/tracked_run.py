"""What a tracker's process is told, as lines of JSON: the run first, then rows of numbers, then how it ended."""

from typing import Literal

from pydantic import Field

from stages.strict import Strict
from stages.trackers import Tracker

RunOutcome = Literal["done", "stopped", "failed"]
"""How an attempt ended; one that was stopped goes on later."""


class TrackedRun(Strict):
    """A stage as a tracker shows it; all attempts at one key are one run."""

    tracker: Tracker
    pipeline: str
    stage: str
    """Its name in the pipeline."""
    kind: str
    key: str
    attempt: str
    config: str
    """The settings as JSON text."""

    @property
    def run_id(self) -> str:
        """The same for all attempts at one key, and for no other."""
        return self.key[:32]


class Row(Strict):
    """Numbers of one step, or the end."""

    step: int = 0
    numbers: dict[str, float] = Field(default_factory=dict)
    outcome: RunOutcome | None = None
    """Given in the last row, which has no numbers."""
