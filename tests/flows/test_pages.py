"""Prefect's own pages about our runs, in a real browser that clicks."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from chromium import Page, chromium
from prefect.client.orchestration import SyncPrefectClient
from scheduled import deploy_file, wait_for_state, wait_until

from flows.scheduler.up import RunningUp
from stages.store.aliases import read_alias
from stages.store.approvals import list_approvals
from stages.store.conditional import open_store

WritePipeline = Callable[..., Path]
PIPELINES = Path(__file__).parents[2] / "pipelines"
PICTURE = Path(__file__).parents[2] / "docs" / "images" / "prefect-run.png"
SECONDS = 400.0

ASSISTANT = """\
version: 1
name: assistant
extends: smoke.yaml
stages:
  sft: {with: {num_steps: 10}}
  grpo: {with: {num_steps: 2}}
  approve: {gate: human, needs: [gate], ask: {approvers: [ml-leads], timeout: 7d}}
  promote:
    action: set_alias
    needs: [approve]
    inputs: {checkpoint: "${stages.grpo.outputs.checkpoint}"}
    with: {alias: prod}
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    folder = tmp_path / "browser"
    folder.mkdir()
    with chromium(folder) as tab:
        tab.resize(1400, 1000)
        yield tab


@pytest.fixture
def open_run(page: Page, prefect_up: RunningUp) -> Callable[[UUID], None]:
    """Shows the page of a run."""
    base = prefect_up.address.removesuffix("/api")
    return lambda flow_run: page.open(f"{base}/runs/flow-run/{flow_run}")


def test_a_run_shows_its_stages_and_is_approved_in_a_form(
    up_client: SyncPrefectClient, page: Page, open_run: Callable[[UUID], None], tmp_path: Path
) -> None:
    shutil.copytree(PIPELINES / "tiny", tmp_path / "tiny")
    shutil.copy(PIPELINES / "smoke.yaml", tmp_path)
    (tmp_path / ".temper").mkdir()
    file = tmp_path / "assistant.yaml"
    file.write_text(ASSISTANT)
    store = open_store(str(tmp_path / ".temper" / "store"))
    run = up_client.create_flow_run_from_deployment(deploy_file(up_client, file, "assistant")).id
    wait_for_state(up_client, run, "Suspended", "Failed", "Crashed", seconds=SECONDS)
    open_run(run)
    page.wait_for("assistant", "Suspended")
    page.click("Artifacts")
    page.wait_for(
        "assistant-plan", "assistant-stages", "assistant-evaluation", "assistant-curves-sft", "question-approve"
    )
    page.click("Task Runs")
    page.wait_for("approve", "Asked", "gate", "Passed", "sft · ", "Committed")
    if os.environ.get("TEMPER_TAKE_PICTURES"):
        # The graph is drawn on a canvas, about which the page says nothing.
        time.sleep(5)
        page.picture(PICTURE)
    page.click("Resume", "button")
    page.wait_for("gate approve asks ml-leads: may the pipeline go on?", "eval_grpo", "95% interval")
    page.click(selector=".p-toggle__control")
    page.click(selector="textarea", number=0)
    page.type("Ada")
    page.click(selector="textarea", number=1)
    page.type("better than before")
    assert page.evaluate("[...document.querySelectorAll('textarea')].map((e) => e.value)") == [
        "Ada",
        "better than before",
    ]
    page.click("Submit", "button")
    page.wait_for("Flow run resumed")
    page.wait_for("Completed", seconds=SECONDS)
    (approval,) = list_approvals(store)
    assert (approval.approved, approval.by, approval.comment) == (True, "Ada", "better than before")
    assert read_alias(store, "prod") is not None
    page.click("Task Runs")
    page.wait_for("promote", "Done", "Reused")


def test_a_run_is_cancelled_by_clicking_and_goes_on_by_clicking(
    up_client: SyncPrefectClient,
    page: Page,
    open_run: Callable[[UUID], None],
    write_pipeline: WritePipeline,
    probe_kinds: None,
    tmp_path: Path,
) -> None:
    pids = tmp_path / "pids"
    settings = f"num_steps: '${{params.steps}}', step_seconds: 0.25, pids: '{pids}'"
    file = write_pipeline(
        f"  quick: {{uses: probe, with: {{}}}}\n  long: {{uses: probe, needs: [quick], with: {{{settings}}}}}\n"
    )
    file.write_text(file.read_text() + "params:\n  steps: {type: int, default: 60}\n")
    run = up_client.create_flow_run_from_deployment(deploy_file(up_client, file, "clicked")).id
    wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    open_run(run)
    page.click("Cancel", "button")
    page.click("Confirm", "button")
    page.wait_for("Cancelled", seconds=60)
    processes = [Path(f"/proc/{process}") for process in pids.read_text().split()]
    wait_until(lambda: not any(process.exists() for process in processes))
    page.click("Task Runs")
    page.wait_for("long · ", "Cancelled", "quick · ", "Committed")
    page.click("Retry", "button")
    page.click("Retry", ".p-modal button")
    wait_for_state(up_client, run, "Completed", "Failed", "Crashed", seconds=SECONDS)
    page.wait_for("Completed", "Resumed", "Reused", seconds=60)
