"""A server with a worker, shared by all tests of a process that need one."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.settings import PREFECT_API_URL, temporary_settings
from scheduled import engine_python

from flows.scheduler.up import RunningUp, UpSettings, start_up


@pytest.fixture(scope="session")
def prefect_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningUp]:
    """What `temper up` starts, with runs that know the probe."""
    folder = tmp_path_factory.mktemp("up")
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("PREFECT_API_URL", raising=False)
            patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
            patch.setenv("XDG_STATE_HOME", str(folder / "state"))
            settings = UpSettings(folder / "home", port=0, python=engine_python(folder))
            up = stack.enter_context(start_up(settings))
        yield up


@pytest.fixture
def up_client(prefect_up: RunningUp, monkeypatch: pytest.MonkeyPatch) -> Iterator[SyncPrefectClient]:
    """A client of that server, which is the one to use for this process and what it starts."""
    monkeypatch.setenv("PREFECT_API_URL", prefect_up.address)
    with temporary_settings({PREFECT_API_URL: prefect_up.address}), get_client(sync_client=True) as client:
        yield client
