"""Observers of a stage."""

from typing import Any

from stages.contract import Beat
from tasks.observer import LineObserver, Observers, StageObserver


def tell_all(observer: StageObserver) -> None:
    observer.waiting("waiting for the cpu")
    observer.running("")
    observer.preempted("preempted")
    observer.running("resuming after step 1")
    observer.note("a note")
    observer.beat(Beat(step=1, total=2, numbers={}))
    observer.log("printed")


def test_several_observers_are_told_the_same(witness: Any) -> None:
    lines: list[str] = []
    tell_all(Observers(witness, LineObserver(lines.append)))
    assert witness.told == [
        "waiting: waiting for the cpu",
        "running: ",
        "preempted: preempted",
        "running: resuming after step 1",
        "note: a note",
    ]
    assert (witness.beats, witness.lines) == ([Beat(step=1, total=2, numbers={})], ["printed"])
    assert lines == ["waiting for the cpu", "preempted", "resuming after step 1", "a note", "printed"]
