"""Fixtures of tests that run real stage processes and a real Prefect server; `tests/conftest.py` takes them in."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from temper_probe import ADDED, register

from flows.cli import main
from flows.server import OwnServer
from flows.server_home import claim_numbered_home
from pipelines.spec.load import load_pipeline
from stages import catalog
from stages.store.conditional import open_store
from stages.store.runs import RunRecord, latest_run

PROBE = Path(__file__).parent


@pytest.fixture
def probe_kinds() -> Iterator[None]:
    """The kinds `probe` and `probe_consumer` in this process's catalog."""
    register()
    yield
    for kind in ADDED:
        del catalog.STAGES[kind]  # type: ignore[attr-defined]


@pytest.fixture
def probe_python(tmp_path: Path) -> str:
    """An interpreter that knows the probe."""
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {PROBE / "probe_python.py"} "$@"\n')
    script.chmod(0o755)
    return str(script)


@pytest.fixture
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cache and state below the test's folder, so that tests never wait for each other's device lock."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="session")
def prefect_server_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prefect server that all tests of this process share: its start takes long."""
    server = OwnServer(claim_numbered_home(tmp_path_factory.mktemp("prefect")))
    try:
        server.wait_until_ready()
        yield server.address
    finally:
        server.stop()


@pytest.fixture
def prefect_api(prefect_server_address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """That server as the one to use, for this process and what it starts."""
    monkeypatch.setenv("PREFECT_API_URL", prefect_server_address)
    from prefect.context import refresh_global_settings_context
    from prefect.settings import PREFECT_API_URL, temporary_settings

    # Prefect's own threads have the settings of the process: as they were when a test's module loaded Prefect.
    refresh_global_settings_context()
    with temporary_settings({PREFECT_API_URL: prefect_server_address}):
        yield prefect_server_address


WritePipeline = Callable[..., Path]


@pytest.fixture
def write_pipeline(tmp_path: Path, probe_python: str) -> WritePipeline:
    """Writes a pipeline of probe stages: `write_pipeline(stages_as_yaml, retry=..., grace=...)`."""

    def write(stages: str, retry: str = "{max: 0}", timeout: str = "{total: 2m, stall: 1m, grace: 10s}") -> Path:
        file = tmp_path / "probes.yaml"
        file.write_text(
            "version: 1\nname: probes\n"
            f"store: {os.fspath(tmp_path / 'store')}\n"
            f"defaults:\n  retry: {retry}\n  timeout: {timeout}\n"
            f"  resources: {{python: {probe_python}}}\n"
            f"stages:\n{stages}"
        )
        return file

    return write


RunFile = Callable[..., tuple[int, RunRecord]]


@pytest.fixture
def run_file(prefect_api: str, own_places: None, probe_kinds: None) -> RunFile:
    """`temper run FILE …` in this process; returns the exit code and the run's record."""

    def run(file: Path, *flags: str) -> tuple[int, RunRecord]:
        code = main(["run", str(file), *flags])
        pipeline = load_pipeline(file)
        record = latest_run(open_store(pipeline.store), pipeline.name)
        assert record is not None
        return code, record

    return run
