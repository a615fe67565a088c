"""What the terminal shows while stages run."""

from io import StringIO

import pytest
from rich.console import Console

from stages.contract import Beat
from tasks.display import Display, Pace, describe_numbers, describe_seconds, describe_steps


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("tasks.display.time.monotonic", lambda: now[0])
    return now


def beat(step: int, total: int = 20) -> Beat:
    return Beat(step=step, total=total, numbers={"loss": 1.23456, "tokens_per_second": 1520.4})


def test_without_a_terminal_lines_are_written_now_and_then(clock: list[float]) -> None:
    out = StringIO()
    with Display(Console(file=out, width=200)) as display:
        display.start("sft", "starting")
        for step in range(1, 13):
            display.beat("sft", beat(step))
            clock[0] += 2.0
        display.note("sft", "resuming [from here]")
        display.end("sft", "done in 24 s")
    assert out.getvalue().splitlines() == [
        "sft: starting",
        "sft: 6/20  loss 1.235  1,520 tokens/s  28 s left",
        "sft: 11/20  loss 1.235  1,520 tokens/s  18 s left",
        "sft: resuming [from here]",
        "sft: done in 24 s",
    ]


def test_on_a_terminal_there_is_a_bar_with_step_numbers_and_time_left(clock: list[float]) -> None:
    out = StringIO()
    with Display(Console(file=out, force_terminal=True, width=160)) as display:
        display.start("grpo", "starting")
        display.beat("grpo", beat(1))
        clock[0] += 10.0
        display.beat("grpo", beat(2))
        display._progress.refresh()
    text = out.getvalue()
    assert "grpo" in text
    assert "2/20" in text
    assert "3 min 00 s left" in text


def test_the_time_left_of_a_resumed_stage_counts_its_own_steps_only(clock: list[float]) -> None:
    pace = Pace()
    assert pace.seconds_left(beat(15)) is None
    clock[0] += 3.0
    assert pace.seconds_left(beat(16)) == 12.0


def test_words() -> None:
    assert describe_numbers({"reward": 0.5, "tokens_per_second": 1234.5}) == "reward 0.5  1,234 tokens/s"
    assert [describe_seconds(value) for value in (9.4, 200, 7500)] == ["9 s", "3 min 20 s", "2 h 05 min"]
    assert [describe_steps(*steps) for steps in ((5, 24), (16, 16), (None, None))] == [", steps 5-24", "", ""]
