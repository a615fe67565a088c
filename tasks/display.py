"""Progress of every stage on the terminal: bars where there is one, plain lines elsewhere."""

import threading
import time
from dataclasses import dataclass, field
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from stages.contract import Beat

LINE_SECONDS = 10.0


@dataclass
class Pace:
    """Steps done since this process began to count, for the time left; a resumed stage starts in the middle."""

    started: float = field(default_factory=time.monotonic)
    first_step: int | None = None

    def seconds_left(self, beat: Beat) -> float | None:
        """Seconds to the last step; None before there is anything to judge by."""
        if self.first_step is None:
            self.first_step, self.started = beat.step, time.monotonic()
        done = beat.step - self.first_step
        if done <= 0:
            return None
        return (time.monotonic() - self.started) / done * (beat.total - beat.step)


class Display:
    """Shows what the stages of one run do. Safe to use from several threads."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._paces: dict[str, Pace] = {}
        self._bars: dict[str, TaskID] = {}
        self._line_at: dict[str, float] = {}
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[steps]}", justify="right"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[text]}"),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> "Display":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def start(self, stage: str, text: str) -> None:
        """A stage begins or begins again."""
        with self._lock:
            self._paces[stage] = Pace()
            self._line_at[stage] = time.monotonic()
            if stage in self._bars:
                self._progress.remove_task(self._bars[stage])
            self._bars[stage] = self._progress.add_task(stage, total=None, steps="", text=text)
            self._print_line(f"{stage}: {text}")

    def beat(self, stage: str, beat: Beat) -> None:
        """A stage got further."""
        with self._lock:
            pace = self._paces.setdefault(stage, Pace())
            left = pace.seconds_left(beat)
            text = describe_numbers(beat.numbers)
            if left is not None and beat.step < beat.total:
                text = f"{text}  {describe_seconds(left)} left"
            steps = f"{beat.step}/{beat.total}"
            if stage in self._bars:
                self._progress.update(self._bars[stage], completed=beat.step, total=beat.total, steps=steps, text=text)
            if time.monotonic() - self._line_at.get(stage, 0.0) >= LINE_SECONDS:
                self._line_at[stage] = time.monotonic()
                self._print_line(f"{stage}: {steps}  {text}")

    def note(self, stage: str, text: str) -> None:
        """Something that the user should know, for example what the stage waits for."""
        with self._lock:
            if stage in self._bars:
                self._progress.update(self._bars[stage], text=text)
            self._print_line(f"{stage}: {text}")

    def end(self, stage: str, text: str) -> None:
        """A stage ended; its bar makes room for one line that stays."""
        with self._lock:
            bar = self._bars.pop(stage, None)
            if bar is not None:
                self._progress.remove_task(bar)
            self._console.print(f"{stage}: {text}", markup=False, highlight=False, soft_wrap=True)

    def _print_line(self, text: str) -> None:
        if not self._console.is_terminal:
            self._console.print(escape(text), highlight=False, soft_wrap=True)


class StageDisplay:
    """One stage on the display; implements `StageObserver`."""

    def __init__(self, display: Display, stage: str) -> None:
        self._display = display
        self._stage = stage

    def waiting(self, text: str) -> None:
        self._display.note(self._stage, text)

    def running(self, text: str) -> None:
        self._display.note(self._stage, text or "running")

    def preempted(self, text: str) -> None:
        self._display.note(self._stage, text)

    def note(self, text: str) -> None:
        self._display.note(self._stage, text)

    def beat(self, beat: Beat) -> None:
        self._display.beat(self._stage, beat)

    def log(self, line: str) -> None:
        """Too many for a terminal; they are in the log of the run."""


def describe_numbers(numbers: dict[str, float]) -> str:
    """For example `loss 1.204  350 tokens/s`."""
    return "  ".join(_describe_number(name, value) for name, value in numbers.items())


def _describe_number(name: str, value: float) -> str:
    if name.endswith("_per_second"):
        return f"{value:,.0f} {name.removesuffix('_per_second').replace('_', ' ')}/s"
    return f"{name.replace('_', ' ')} {value:.4g}"


def describe_steps(first: int | None, last: int | None) -> str:
    """For example `, steps 5-24`; nothing where there is no range, as in a stage with one row of metrics."""
    return "" if first is None or last is None or first >= last else f", steps {first}-{last}"


def describe_seconds(seconds: float) -> str:
    """For example `9 s`, `3 min 20 s`, `2 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
