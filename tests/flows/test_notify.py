"""Who is told what of a run, by a receiver of this machine."""

import json
import logging
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from flows.notify import message, notify
from pipelines.spec.nodes import Notify
from stages.store.runs import RunOutcome, RunRecord, RunStage

RunFile = Callable[..., tuple[int, RunRecord]]
WritePipeline = Callable[..., Path]


class Receiver(BaseHTTPRequestHandler):
    """Keeps what it is told."""

    told: list[dict[str, str]]

    def do_POST(self) -> None:
        self.told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        return


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Its Apprise address, and what it was told."""
    told: list[dict[str, str]] = []
    handler = type("Keeps", (Receiver,), {"told": told})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"json://127.0.0.1:{server.server_port}/", told
        server.shutdown()


def record(outcome: RunOutcome, *stages: RunStage) -> RunRecord:
    return RunRecord(
        run_id="20260102T030405Z-0badcafe",
        pipeline="p",
        profile="tpu",
        argv=(),
        started="2026-01-02",
        outcome=outcome,
        message="sft" if outcome == "failed" else "",
        run_url="http://127.0.0.1:4200/runs/flow-run/1",
        stages=stages,
    )


def test_the_text_says_run_what_failed_and_why_and_where_to_look() -> None:
    failed = RunStage(id="sft", kind="sft", outcome="failed", message="oom: killed\ntail")
    gate = RunStage(id="ask", kind="gate", outcome="waiting_approval", reason="asks ml-leads")
    assert message(record("failed", failed, gate)).splitlines() == [
        "run 20260102T030405Z-0badcafe, profile tpu",
        "sft",
        "sft: oom: killed",
        "ask: asks ml-leads",
        "http://127.0.0.1:4200/runs/flow-run/1",
    ]


@pytest.mark.parametrize(
    ("outcome", "title"),
    [("failed", "p failed"), ("succeeded", "p succeeded"), ("waiting_approval", "p waits for approval")],
)
def test_one_is_told_of_what_one_asked_for(
    outcome: RunOutcome, title: str, receiver: tuple[str, list[dict[str, str]]]
) -> None:
    address, told = receiver
    notify(Notify(("failed", "gate_waiting", "succeeded"), address), record(outcome))
    assert [one["title"] for one in told] == [title]


def test_one_is_told_nothing_else(receiver: tuple[str, list[dict[str, str]]]) -> None:
    address, told = receiver
    notify(Notify(("failed",), address), record("succeeded"))
    notify(Notify(("failed", "succeeded"), address), record("stopped"))
    notify(None, record("failed"))
    assert told == []


def test_the_address_may_be_a_secret(
    receiver: tuple[str, list[dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, told = receiver
    monkeypatch.setenv("TEMPER_SECRET_PAGER", address)
    notify(Notify(("failed",), "secret://pager"), record("failed"))
    assert len(told) == 1


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("secret://nobody", "the secret 'nobody' is not known"),
        ("nonsense", "no address that Apprise understands"),
        ("json://127.0.0.1:1/", "the receiver did not take it"),
    ],
)
def test_that_nobody_could_be_told_is_said_and_is_no_failure(
    address: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "flows.notify"):
        notify(Notify(("failed",), address), record("failed"))
    assert any(why in line and "127.0.0.1:1" not in line for line in caplog.messages)


def test_a_run_tells_of_its_failure(
    run_file: RunFile, write_pipeline: WritePipeline, receiver: tuple[str, list[dict[str, str]]]
) -> None:
    address, told = receiver
    file = write_pipeline("  one: {uses: probe, with: {fault: bug}}\n")
    notice = f"notify: {{on: [failed], to: '{address}'}}\n"
    file.write_text(file.read_text() + notice)
    code, failed = run_file(file)
    assert (code, len(told)) == (1, 1)
    assert f"run {failed.run_id}\none\none: bug: ValueError: a bug" in told[0]["message"]
    assert failed.run_url is not None
    assert failed.run_url in told[0]["message"]
