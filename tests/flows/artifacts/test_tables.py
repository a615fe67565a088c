"""Plans and records as tables."""

import base64
from pathlib import Path
from xml.etree import ElementTree as ET

from flows.artifacts.curves import picture
from flows.artifacts.markdown import table
from flows.artifacts.tables import stage_rows
from stages.store.local import LocalStore
from stages.store.memory import MemoryStore
from stages.store.runs import RunRecord, RunStage
from tasks.links import address
from tasks.report.charts import Series


def record(*stages: RunStage) -> RunRecord:
    return RunRecord(
        run_id="20260102T030405Z-0badcafe", pipeline="p", profile=None, argv=(), started="2026-01-02", stages=stages
    )


def test_a_cell_holds_any_text_without_breaking_its_table() -> None:
    assert table(("a", "b"), [("x|y\nz", "2")]) == "| a | b |\n| --- | --- |\n| x\\|y z | 2 |"


def test_an_object_in_a_bucket_links_to_the_console_and_one_on_the_disk_to_its_file(tmp_path: Path) -> None:
    assert address(LocalStore(tmp_path), "v1/x.json") == f"file://{tmp_path}/v1/x.json"


def test_a_committed_stage_links_to_its_manifest_and_a_failed_one_says_why() -> None:
    key = "ab" * 32
    done = RunStage(id="sft", kind="sft", key=key, outcome="done", seconds=61.0, first_step=1, last_step=4)
    failed = RunStage(id="grpo", kind="grpo", key="cd" * 32, outcome="failed", message="bug: boom\ntraceback")
    gate = RunStage(id="gate", kind="gate", outcome="passed", lines=("passed: accuracy > 0",))
    rows = stage_rows(MemoryStore("memory://x"), record(done, failed, gate))
    assert rows[0]["time"] == "1 min 01 s"
    assert (rows[0]["steps"], rows[0]["key"]) == ("1-4", "ab" * 8)
    assert f"v1/stages/sft/{key}/manifest.json" in rows[0]["result"]
    assert (rows[1]["detail"], rows[1]["result"]) == ("bug: boom", "")
    assert rows[2]["detail"] == "passed: accuracy > 0"


def test_curves_are_one_picture_with_a_title_for_each(tmp_path: Path) -> None:
    series = [Series(f"loss/{name}", (1, 2), (3.0, 2.0)) for name in ("a", "b", "c")]
    kind, _, data = picture(series).partition(",")
    assert kind == "data:image/svg+xml;base64"
    root = ET.fromstring(base64.b64decode(data))
    titles = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text") if text.get("class") == "title"]
    assert titles == ["loss/a", "loss/b", "loss/c"]
    assert root.get("viewBox") == "0 0 680 388"
