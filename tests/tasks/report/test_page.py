"""The report of a run: what is gathered for it, and the page."""

import json
import re
from pathlib import Path

import pytest

from stages.contract import ExternalInput as External
from stages.contract import ReportArtifact, SourceRef, StageInput, StoredInput
from stages.store.conditional import ConditionalStore, open_store
from stages.store.layout import StagePaths
from stages.store.manifest import Manifest
from stages.store.provenance import Provenance
from stages.store.records import encode
from stages.store.runs import RunRecord, RunStage
from stages.store.segments import MetricRow, MetricsWriter
from tasks.report.charts import Series
from tasks.report.content import MAX_POINTS, SAMPLES_SHOWN, gather, series_of
from tasks.report.files import write_report
from tasks.report.page import render_page

IDS = [f"held_out-{number:05d}" for number in range(40)]
PROVENANCE = Provenance(argv=(), git_revision=None, packages={}, host="h", python="3.11", system="s")


@pytest.fixture
def store(tmp_path: Path) -> ConditionalStore:
    return open_store(str(tmp_path / "store"))


def commit(store: ConditionalStore, tmp_path: Path, stage: RunStage, right: int, dataset: str = "aa") -> None:
    """Commits an evaluation in which the first `right` samples are right."""
    assert stage.key is not None
    paths = StagePaths(stage.kind, stage.key)
    rows = [
        {"id": name, "prompt": f"{n} + 1 =", "answer": str(n + 1), "response": "<script>alert(1)</script>",
         "accuracy": float(n < right), "strict_accuracy": 0.0}
        for n, name in enumerate(IDS)
    ]  # fmt: skip
    metrics = {"accuracy": right / len(IDS), "strict_accuracy": 0.0}
    report = ReportArtifact(metrics=metrics, samples_file="samples.jsonl", num_samples=len(IDS))
    files = {
        "artifact.json": report.model_dump_json(),
        "samples.jsonl": "".join(json.dumps(row) + "\n" for row in rows),
    }
    entries = []
    for name, text in files.items():
        local = tmp_path / name
        local.write_text(text)
        entry = store.upload(f"{paths.attempt('000001-a').out('report')}/{name}", local)
        entries.append(entry.model_copy(update={"path": name}))
    inputs: dict[str, StageInput] = {
        "model": External(source=SourceRef(uri="tiny", digest="sha256:00")),
        "dataset": StoredInput(stage="prepare", key=dataset, output="held_out", folder="x", files=()),
    }
    manifest = Manifest(
        stage=stage.kind, key=stage.key, version=1, attempt="000001-a", epoch=1, outputs={"report": tuple(entries)},
        numbers={}, inputs=inputs, created="2026-01-01T00:00:00+00:00", seconds=1.0, provenance=PROVENANCE,
    )  # fmt: skip
    store.create(paths.manifest, encode(manifest))


def evaluation(name: str, key: str) -> RunStage:
    inputs = {"model": f"{name}.checkpoint", "dataset": "data.held_out"}
    return RunStage(id=name, kind="evaluation", key=key * 32, outcome="done", inputs=inputs, settings='{"seed":1}')


@pytest.fixture
def record(store: ConditionalStore, tmp_path: Path) -> RunRecord:
    """A run with three evaluations, a training stage with metrics, a failure and a gate."""
    base, sft, other = evaluation("eval_base", "0a"), evaluation("eval_sft", "0b"), evaluation("eval_other", "0c")
    commit(store, tmp_path, base, 2)
    commit(store, tmp_path, sft, 30)
    commit(store, tmp_path, other, 31, dataset="bb")
    training = RunStage(id="sft", kind="sft", key="0d" * 32, outcome="done", seconds=3.0, first_step=1, last_step=9)
    metrics = MetricsWriter(store, StagePaths("sft", "0d" * 32).attempt("000001-a"), 1)
    for step in range(1, 10):
        metrics.append(step, {"loss/nll": 2.0 / step, "reward/mean": step / 10})
    metrics.flush()
    failed = RunStage(id="grpo", kind="grpo", key="0e" * 32, outcome="failed", message="oom: killed <by> the kernel")
    gate = RunStage(id="gate", kind="gate", outcome="failed", lines=("failed: accuracy >= 0.9 (accuracy = 0.75)",))
    return RunRecord(
        run_id="20260101T000000Z-ab", pipeline="demo", path=str(tmp_path / "demo.yaml"), profile="long", argv=(),
        started="2026-01-01T00:00:00+00:00", finished="2026-01-01T00:01:05+00:00", outcome="failed",
        message="grpo", stages=(base, training, sft, other, failed, gate),
    )  # fmt: skip


def test_differences_are_taken_on_the_same_data_set_only(
    store: ConditionalStore, record: RunRecord, tmp_path: Path
) -> None:
    base, sft, other = gather(store, record, tmp_path / "cache").evaluations
    assert (base.from_first, base.from_previous, other.from_first) == (None, None, None)
    assert sft.from_first is not None
    assert sft.from_first.other == "eval_base"
    assert sft.from_first.interval.mean == pytest.approx(28 / 40)
    assert sft.from_first.interval.low > 0
    assert sft.from_previous is None
    assert sft.accuracy is not None
    assert sft.accuracy.low < sft.accuracy.mean == 0.75 < sft.accuracy.high


def test_the_page_shows_every_part_and_escapes_what_models_and_processes_said(
    store: ConditionalStore, record: RunRecord, tmp_path: Path
) -> None:
    page = render_page(gather(store, record, tmp_path / "cache"))
    for text in ("demo", "1 min 05 s", "profile", "75.0%", "+70.0", "eval_base", "loss/nll", "accuracy = 0.75",
                 "oom: killed &lt;by&gt; the kernel", "1–9", "&lt;script&gt;alert(1)&lt;/script&gt;"):  # fmt: skip
        assert text in page, text
    assert "<script" not in page
    assert page.count("<polyline") == 2


def test_the_page_needs_nothing_from_elsewhere(store: ConditionalStore, record: RunRecord, tmp_path: Path) -> None:
    page = render_page(gather(store, record, tmp_path / "cache"))
    assert not re.search(r"""(src|href|srcset)=["']?(?!\#)|@import|url\(""", page)
    assert "prefers-color-scheme: dark" in page


def test_the_report_is_in_the_store_and_beside_the_pipelines_state(
    store: ConditionalStore, record: RunRecord, tmp_path: Path
) -> None:
    (tmp_path / ".temper").mkdir()
    content = gather(store, record, tmp_path / "cache")
    assert write_report(content, store) == write_report(content, store)
    path = write_report(content, store)
    assert path == tmp_path / ".temper" / "reports" / "demo.html"
    stored = store.get("v1/runs/demo/2026/20260101T000000Z-ab/report.html")
    assert stored is not None
    assert stored.data == path.read_bytes()


def test_a_run_without_any_result_has_a_report_too(store: ConditionalStore, record: RunRecord, tmp_path: Path) -> None:
    stages = (RunStage(id="sft", kind="sft", key="ff" * 32, outcome="failed", message="bug: ValueError"),)
    page = render_page(gather(store, record.model_copy(update={"stages": stages}), tmp_path / "cache"))
    assert "bug: ValueError" in page
    assert "Evaluation" not in page


def test_the_same_first_problems_are_shown_for_all_evaluations_whatever_their_outcome(
    store: ConditionalStore, record: RunRecord, tmp_path: Path
) -> None:
    (comparison,) = gather(store, record, tmp_path / "cache").comparisons
    assert comparison.ids == tuple(IDS[:SAMPLES_SHOWN])
    assert [evaluation.stage for evaluation in comparison.evaluations] == ["eval_base", "eval_sft", "eval_other"]


def test_series_need_two_points_come_by_interest_and_are_thinned() -> None:
    rows = [MetricRow(epoch=1, step=step, numbers={"loss/nll": 1.0, "reward/mean": 0.5}) for step in range(1, 1001)]
    rows.append(MetricRow(epoch=1, step=1001, numbers={"data/once": 1.0}))
    reward, loss = series_of(rows)
    assert (reward.name, loss.name) == ("reward/mean", "loss/nll")
    assert len(reward.steps) <= MAX_POINTS
    assert series_of(rows[:2])[0] == Series("reward/mean", (1, 2), (0.5, 0.5))
