"""The server of a run: its own, or the one that is named."""

import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from flows.server import OwnServer, ServerStartError, prefect_server
from flows.server_home import claim_numbered_home
from stages.errors import StorageError
from tasks.launchers.local import group_runs


class Healthy(BaseHTTPRequestHandler):
    """A server that is there, and is healthy or wants to know who asks."""

    def do_GET(self) -> None:
        self.send_response({"/api/health": 200, "/private/health": 401}.get(self.path, 500))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        return


@pytest.mark.parametrize("path", ["api", "api/", "private"])
def test_a_named_server_is_used_and_none_is_started(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Healthy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{server.server_port}/{path}")
        with prefect_server(tmp_path / "home") as address:
            assert address == os.environ["PREFECT_API_URL"]
        server.shutdown()
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("address", ["http://127.0.0.1:1/api", "nonsense"])
def test_a_named_server_that_does_not_answer_is_an_error_that_names_it(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", address)
    with pytest.raises(ServerStartError, match=f"at {address}, which PREFECT_API_URL names"), prefect_server(tmp_path):
        pass


def test_a_home_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=f"cannot write {tmp_path}/file/prefect/0: Not a directory"):
        claim_numbered_home(tmp_path / "file" / "prefect")


def test_a_server_that_does_not_come_up_is_an_error_that_names_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.server.sys.executable", "/bin/false")
    server = OwnServer(claim_numbered_home(tmp_path))
    try:
        with pytest.raises(ServerStartError, match=r"0/server\.log"):
            server.wait_until_ready()
    finally:
        server.stop()


def test_the_server_dies_with_the_process_that_started_it_and_a_second_one_has_another_home(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from flows.server import OwnServer\n"
        "from flows.server_home import claim_numbered_home\n"
        "servers = [OwnServer(claim_numbered_home(Path(sys.argv[1]))) for _ in range(2)]\n"
        "print(*[server._process.pid for server in servers], flush=True); time.sleep(1000)"
    )
    owner = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    groups = [int(text) for text in owner.stdout.readline().split()]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]
    assert all(map(group_runs, groups))
    os.kill(owner.pid, signal.SIGKILL)
    owner.communicate()
    deadline = time.monotonic() + 5
    while any(map(group_runs, groups)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(group_runs, groups))
