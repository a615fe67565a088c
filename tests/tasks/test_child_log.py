"""The output of a child: all of it stored, some of it shown."""

from pathlib import Path

import pytest

from stages.errors import StorageError
from stages.store.conditional import ConditionalStore, open_store
from stages.store.segments import SegmentWriter
from tasks.child_log import LINES_PER_SECOND, ChildLog


@pytest.fixture
def store(tmp_path: Path) -> ConditionalStore:
    return open_store(str(tmp_path))


def test_a_flood_of_lines_is_stored_whole_and_shown_in_part(
    store: ConditionalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.child_log.time.monotonic", lambda: 7.0)
    shown: list[str] = []
    log = ChildLog(SegmentWriter(store, lambda n: f"log/{n}"), shown.append)
    for number in range(100):
        log(f"line {number}")
    log.close()
    assert shown[:LINES_PER_SECOND] == [f"line {number}" for number in range(LINES_PER_SECOND)]
    assert shown[LINES_PER_SECOND:] == [f"… {100 - LINES_PER_SECOND} lines left out here; `temper logs` shows all"]
    stored = store.get("log/0")
    assert stored is not None
    assert stored.data.decode().splitlines() == [f"line {number}" for number in range(100)]
    assert log.tail().splitlines() == [f"line {number}" for number in range(80, 100)]


def test_a_log_that_cannot_be_stored_does_not_stop_the_stage(store: ConditionalStore) -> None:
    class Broken(SegmentWriter):
        def flush(self) -> None:
            raise StorageError("the disk is full")

    shown: list[str] = []
    log = ChildLog(Broken(store, str), shown.append)
    log("one")
    log.close()
    assert shown == ["one", "the log could not be stored: the disk is full"]
