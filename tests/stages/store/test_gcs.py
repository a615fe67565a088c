"""What only a store in a bucket has: errors of a network, retries, an optional library."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from google.cloud.storage.retry import DEFAULT_RETRY

from stages.errors import StorageError, UserError
from stages.store.conditional import open_store
from stages.store.gcs import GcsStore

IMPATIENT = DEFAULT_RETRY.with_delay(initial=0.01, maximum=0.02).with_timeout(0.5)


class Server(ThreadingHTTPServer):
    """Answers with `statuses` in turn, then with the last one for ever."""

    statuses: list[int]


class Answers(BaseHTTPRequestHandler):
    def answer(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(server.statuses.pop(0) if len(server.statuses) > 1 else server.statuses[0])
        self.send_header("Content-Length", "2")
        self.send_header("X-Goog-Generation", "7")
        self.end_headers()
        self.wfile.write(b"{}")

    do_GET = do_POST = do_DELETE = answer  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Quiet."""


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), Answers)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_passing_failure_of_the_service_is_retried(service: Server, status: int) -> None:
    service.statuses = [status, status, 200]
    stored = GcsStore("gs://bucket", IMPATIENT.with_timeout(10)).get("v1/a")
    assert stored is not None
    assert (stored.data, stored.generation) == (b"{}", "7")


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        (401, "log in with `gcloud auth application-default login`"),
        (403, "give this account the role Storage Object User"),
        (503, "check the network"),
    ],
)
def test_a_lasting_failure_is_a_storage_error_with_path_and_remedy(
    service: Server, status: int, remedy: str, tmp_path: Path
) -> None:
    service.statuses = [status]
    store = GcsStore("gs://bucket/team", IMPATIENT)
    (tmp_path / "file").write_bytes(b"1")
    calls = [
        lambda: store.get("v1/a"),
        lambda: store.list("v1/a"),
        lambda: store.create("v1/a", b""),
        lambda: store.upload("v1/a", tmp_path / "file"),
        lambda: store.delete("v1/a"),
    ]
    for call in calls:
        with pytest.raises(StorageError, match=rf"gs://bucket/team/v1/a: .*{remedy}"):
            call()


def test_an_unreachable_service_is_a_storage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
    with pytest.raises(StorageError, match="check the network and the bucket"):
        GcsStore("gs://bucket", IMPATIENT).get("v1/a")


def test_a_missing_bucket_is_named_when_something_is_written(gcs_store_uri: str) -> None:
    store = open_store("gs://no-such-bucket-at-all/team")
    with pytest.raises(StorageError, match=r"gs://no-such-bucket-at-all/team/v1/a: .*check the bucket's name"):
        store.create("v1/a", b"")


def test_a_uri_without_a_bucket_is_refused() -> None:
    with pytest.raises(UserError, match="expected gs://bucket or gs://bucket/prefix"):
        GcsStore("gs://")


def test_a_prefix_separates_two_stores_of_one_bucket(gcs_store_uri: str) -> None:
    one, two = open_store(f"{gcs_store_uri}/one"), open_store(f"{gcs_store_uri}/two/")
    one.create("v1/a", b"1")
    assert two.get("v1/a") is None
    assert two.list("v1") == []
    assert two.uri.endswith("/team/two")


def test_without_the_extra_the_error_names_it() -> None:
    program = """
import sys
sys.modules["google.cloud.storage"] = None
from stages.errors import UserError
from stages.store.conditional import open_store
open_store("/tmp")
try:
    open_store("gs://bucket")
except UserError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "gs:// needs the `gcs` extra" in done.stdout
    assert "pip install 'temper-jax[gcs]'" in done.stdout


def test_a_local_store_loads_no_cloud_library() -> None:
    program = "import sys; from stages.store.conditional import open_store; open_store('x'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "google.cloud.storage" not in done.stdout.split()
    assert "requests" not in done.stdout.split()
