import json
from pathlib import Path

import pytest

from pipelines.actions.reports import read_metrics, read_report
from stages.contract import ReportArtifact
from stages.errors import StorageError
from stages.store.conditional import ConditionalStore, CorruptObjectError
from stages.store.local import LocalStore
from stages.store.manifest import Manifest
from stages.store.memory import MemoryStore
from stages.store.provenance import Provenance

NOWHERE = Provenance(argv=(), git_revision=None, packages={}, host="here", python="3", system="test")
GOOD = [{"id": "a", "accuracy": 1, "response": "7"}, {"id": "b", "accuracy": 0, "response": "Ä"}]


def stored(store: ConditionalStore, folder: Path, files: dict[str, str]) -> Manifest:
    manifest = Manifest(
        stage="evaluation",
        key="k" * 64,
        version=1,
        attempt="000001-a",
        epoch=1,
        outputs={"report": ()},
        numbers={},
        inputs={},
        created="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        provenance=NOWHERE,
    )
    entries = []
    for name, text in files.items():
        (folder / name).write_text(text)
        entry = store.upload(f"{manifest.output_folder('report')}/{name}", folder / name)
        entries.append(entry.model_copy(update={"path": name}))
    return manifest.model_copy(update={"outputs": {"report": tuple(entries)}})


def report_files(rows: list[str], samples_file: str | None = "samples.jsonl") -> dict[str, str]:
    artifact = ReportArtifact(metrics={"accuracy": 0.5}, samples_file=samples_file, num_samples=len(rows))
    return {"artifact.json": artifact.model_dump_json(), "samples.jsonl": "".join(f"{row}\n" for row in rows)}


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_a_report_has_metrics_and_samples_by_id(kind: str, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store") if kind == "local" else MemoryStore("memory://reports")
    files = report_files([json.dumps(row, ensure_ascii=False) for row in GOOD])
    report = read_report(store, stored(store, tmp_path, files), "report", tmp_path / "cache")
    assert report.metrics == {"accuracy": 0.5}
    assert report.column("accuracy") == {"a": 1.0, "b": 0.0}
    assert report.samples["b"]["response"] == "Ä"
    assert report.column("response") == {}
    assert report.column("nothing") == {}


def test_a_report_may_have_no_samples(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    manifest = stored(store, tmp_path, report_files([], samples_file=None))
    assert read_report(store, manifest, "report", tmp_path / "cache").samples == {}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"samples.jsonl": ""}, "has no artifact.json"),
        ({"artifact.json": "{}"}, "holds no report"),
        (report_files(["[1]"]), r"samples.jsonl:1: no JSON object"),
        (report_files(['{"id": "a"}', '{"id": "a"}']), r"samples.jsonl:2: expected a text `id`"),
        (report_files(['{"id": 3}']), r"samples.jsonl:1: expected a text `id`"),
    ],
)
def test_a_bad_report_is_refused_with_its_place(files: dict[str, str], message: str, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    with pytest.raises(StorageError, match=message):
        read_report(store, stored(store, tmp_path, files), "report", tmp_path / "cache")


def test_a_damaged_report_is_refused(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    manifest = stored(store, tmp_path, report_files([json.dumps(row) for row in GOOD]))
    file = Path(store.location(f"{manifest.output_folder('report')}/samples.jsonl"))
    file.chmod(0o644)
    file.write_text("{}\n")
    with pytest.raises(StorageError, match="samples"):
        read_report(store, manifest, "report", tmp_path / "cache")


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_metrics_are_read_without_the_samples(kind: str, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store") if kind == "local" else MemoryStore("memory://metrics")
    manifest = stored(store, tmp_path, {"artifact.json": report_files([])["artifact.json"]})
    report = read_metrics(store, manifest, "report")
    assert (report.metrics, report.samples) == ({"accuracy": 0.5}, {})


def test_metrics_whose_bytes_changed_are_refused(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    manifest = stored(store, tmp_path, report_files([]))
    file = Path(store.location(f"{manifest.output_folder('report')}/artifact.json"))
    file.chmod(0o644)
    file.write_text(ReportArtifact(metrics={"accuracy": 0.9}).model_dump_json())
    with pytest.raises(CorruptObjectError, match="was changed since; `--verify deep` has it made again"):
        read_metrics(store, manifest, "report")
    file.unlink()
    with pytest.raises(CorruptObjectError, match="is gone"):
        read_metrics(store, manifest, "report")
