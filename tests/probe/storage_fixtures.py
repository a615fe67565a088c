"""A storage service that fails at random; `tests/conftest.py` takes it in."""

import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

PROXY = Path(__file__).parents[1] / "fault" / "faulty_proxy.py"

FaultyStorage = Callable[[int, float], AbstractContextManager[None]]


@pytest.fixture
def faulty_storage(gcs_emulator: str, monkeypatch: pytest.MonkeyPatch) -> FaultyStorage:
    """`with faulty_storage(seed, rate):` every client of this process and of those it starts meets faults."""

    @contextmanager
    def faulty(seed: int, rate: float) -> Generator[None]:
        upstream = gcs_emulator.rpartition(":")[2]
        command = [sys.executable, str(PROXY), upstream, str(seed), str(rate)]
        proxy = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert proxy.stdout is not None
        address = f"http://127.0.0.1:{proxy.stdout.readline().strip()}"
        with monkeypatch.context() as patch:
            patch.setenv("STORAGE_EMULATOR_HOST", address)
            patch.setenv("TENSORSTORE_GCS_HTTP_URL", address)
            try:
                yield
            finally:
                print("faults:", proxy.communicate(timeout=10)[0])  # noqa: T201

    return faulty
