"""Event files byte by byte; the slow tests of trackers read them with TensorBoard itself."""

import struct
from pathlib import Path

import pytest

from stages.engine.metrics.event_file import EventFile

MOMENT = 1.5


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EventFile:
    monkeypatch.setattr("time.time", lambda: MOMENT)
    return EventFile(tmp_path / "run" / "events")


def records(file: Path) -> list[bytes]:
    """Messages without their lengths and checksums."""
    data, found = file.read_bytes(), list[bytes]()
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        found.append(data[12 : 12 + length])
        data = data[16 + length :]
    return found


def test_a_file_begins_as_tensorflow_begins_it(events: EventFile, tmp_path: Path) -> None:
    events.close()
    begin = (
        bytes.fromhex("18 00 00 00 00 00 00 00 a3 7f 4b 22 09") + struct.pack("<d", MOMENT) + b"\x1a\x0dbrain.Event:2"
    )
    data = (tmp_path / "run" / "events").read_bytes()
    assert data[: len(begin)] == begin
    assert len(data) == len(begin) + 4


def test_a_step_is_an_event_with_a_value_for_each_number(events: EventFile, tmp_path: Path) -> None:
    events.add(300, {"a": 0.5, "b": -2.0})
    events.close()
    wall = b"\x09" + struct.pack("<d", MOMENT)
    step = b"\x10\xac\x02"  # 300 in groups of seven bits
    first = b"\x0a\x08" + b"\x0a\x01a" + b"\x15" + struct.pack("<f", 0.5)
    second = b"\x0a\x08" + b"\x0a\x01b" + b"\x15" + struct.pack("<f", -2.0)
    mark = b"\x3a\x02\x08\x01"
    assert records(tmp_path / "run" / "events")[1:] == [wall + step + mark, wall + step + b"\x2a\x14" + first + second]


def test_what_is_added_can_be_read_at_once(events: EventFile, tmp_path: Path) -> None:
    events.add(1, {"a": 0.5})
    events.add(2, {"a": 0.25})
    assert len(records(tmp_path / "run" / "events")) == 4
