"""A run that reuses everything appears at the server, and does not load Prefect for it."""

import http.server
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from flows.reused_run import shown_run
from stages.store.runs import RunRecord

RunFile = Callable[..., tuple[int, RunRecord]]
WritePipeline = Callable[..., Path]

WITHOUT_PREFECT = """\
import sys
from temper_probe import register
from flows.cli import main
register()
code = main(sys.argv[1:])
assert "prefect" not in sys.modules
sys.exit(code)
"""
STAGES = """\
  one: {uses: probe, with: {num_steps: 1}}
  gate: {gate: eval, inputs: {report: '${stages.one.outputs.report}'}, require: ['total > 9'], on_fail: skip_downstream}
  twin: {uses: probe, with: {num_steps: 1}}
"""


def test_it_has_a_flow_run_with_its_nodes_in_states_with_names(
    run_file: RunFile, write_pipeline: WritePipeline, prefect_api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId

    file = write_pipeline(STAGES)
    run_file(file)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "probe"))
    command = [sys.executable, "-c", WITHOUT_PREFECT, "run", str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (watch,) = [line for line in ended.stdout.splitlines() if line.startswith("watch it at ")]
    flow_run = UUID(watch.rpartition("/")[2])
    with get_client(sync_client=True) as client:
        run = client.read_flow_run(flow_run)
        only = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run]))
        tasks = client.read_task_runs(flow_run_filter=only)
    assert run.state is not None
    assert (run.name, run.state.name, run.start_time is not None) == ("probes", "Completed", True)
    states = {task.name.partition(" ")[0]: task.state.name for task in tasks if task.state is not None}
    assert states == {"one": "Reused", "gate": "NotPassed", "twin": "Reused"}


@pytest.fixture
def answering() -> Iterator[Callable[[list[int]], str]]:
    """A server that answers with these codes, the last one again and again, and its address."""
    servers: list[http.server.ThreadingHTTPServer] = []

    def answering(codes: list[int]) -> str:
        class Answer(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.send_response(codes.pop(0) if len(codes) > 1 else codes[0])
                self.send_header("Content-Length", "13")
                self.end_headers()
                self.wfile.write(b'{"id":"some"}')

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
                """The test needs no log."""

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}/api"

    yield answering
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_server_that_wants_more_than_this_is_left_to_prefects_own_client(
    answering: Callable[[list[int]], str],
) -> None:
    with shown_run(answering([403]), "probes") as shown:
        assert shown is None


def test_a_busy_server_is_asked_again(answering: Callable[[list[int]], str]) -> None:
    with shown_run(answering([503, 429, 200]), "probes") as shown:
        assert shown is not None
        assert shown.url.endswith("/runs/flow-run/some")


def test_a_run_that_comes_to_no_end_shows_as_crashed(prefect_api: str) -> None:
    from prefect.client.orchestration import get_client

    urls: list[str] = []

    def fail() -> None:
        with shown_run(prefect_api, "probes") as shown:
            assert shown is not None
            urls.append(shown.url)
            raise KeyError("broken")

    with pytest.raises(KeyError):
        fail()
    with get_client(sync_client=True) as client:
        run = client.read_flow_run(UUID(urls[0].rpartition("/")[2]))
    assert run.state is not None
    assert (run.state.name, run.state.message) == ("Crashed", "'broken'")
