"""The wish to stop a run."""

import pytest

from tasks.stopping import StopSignal


def test_the_first_reason_to_stop_stays() -> None:
    stop = StopSignal()
    assert not stop.requested
    stop.request("received SIGINT")
    stop.request("an error of the run")
    assert (stop.requested, stop.reason, stop.wait(10)) == (True, "received SIGINT", True)


def test_work_is_busy_until_a_while_after_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = StopSignal()
    assert not stop.is_busy
    with stop.busy(), stop.busy():
        assert stop.is_busy
    assert stop.is_busy
    monkeypatch.setattr("tasks.stopping.TELL_SECONDS", 0.0)
    assert not stop.is_busy
