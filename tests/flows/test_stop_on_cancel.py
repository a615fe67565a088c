"""A run that no worker looks after is stopped by its cancellation in Prefect."""

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.states import Cancelling, Running

from flows import stop_on_cancel as module
from flows.stop_on_cancel import CANCELLED, stop_on_cancel
from tasks.stopping import StopSignal, exit_code_of


@flow
def runs() -> None:
    """Only its id is used."""


def test_a_cancelled_run_is_asked_to_stop_and_one_that_goes_on_is_not(
    prefect_api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.2)
    stop = StopSignal()
    with get_client(sync_client=True) as client:
        run = client.create_flow_run(runs, state=Running()).id
        with stop_on_cancel(stop, run):
            assert not stop.wait(1.0)
            client.set_flow_run_state(run, Cancelling())
            assert stop.wait(10.0)
    assert (stop.reason, exit_code_of(stop.reason)) == (CANCELLED, 143)


def test_a_server_that_does_not_answer_has_cancelled_nothing(prefect_api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    monkeypatch.setattr(module, "LOOK_SECONDS", 0.1)
    stop = StopSignal()
    with get_client(sync_client=True) as client:
        run = client.create_flow_run(runs).id
    with (
        temporary_settings({PREFECT_API_URL: "http://127.0.0.1:1/api", PREFECT_CLIENT_MAX_RETRIES: 0}),
        stop_on_cancel(stop, run),
    ):
        assert not stop.wait(1.0)
