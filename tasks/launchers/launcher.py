"""What starts a stage, and what every launcher gives back: its processes as one thing to watch and to stop."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from stages.contract import Beat, StageRequest, StageResult


@dataclass(frozen=True)
class Launch:
    """What to start.

    Attributes:
        request: the attempt; its scratch folder is made.
        python: interpreter, None for the running one.
        accelerator: device set that the stage uses.
        inherited: descriptors that the processes keep open as long as they live.
        environment: what the processes have in addition to the environment of this one.
        num_processes: how many processes run the stage together.
        on_line: gets each line of stdout and stderr, from a thread.
        on_beat: gets each beat, from a thread.
    """

    request: StageRequest
    python: str | None
    accelerator: str
    on_line: Callable[[str], None]
    on_beat: Callable[[Beat], None]
    inherited: tuple[int, ...] = ()
    num_processes: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)


class Child(Protocol):
    """A running stage: its process or processes, and everything that these started."""

    def wait(self, seconds: float) -> int | None:
        """The return code that tells how the stage ended, None if it has not after `seconds`; negative for a signal."""
        ...

    def terminate(self) -> None:
        """Ask it to save and stop."""
        ...

    def kill(self) -> None:
        """End it now."""
        ...

    def close(self) -> None:
        """Kill what is left of it and return when nothing of it runs any more."""
        ...

    def result(self) -> StageResult | None:
        """What it wrote about its end; None if it did not get that far."""
        ...

    @property
    def blamed(self) -> str:
        """Which of several processes the end is about, as the start of a message; empty for one that is alone."""
        ...
