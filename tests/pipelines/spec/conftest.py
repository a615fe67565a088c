"""A small pipeline on disk, a store, and commits of planned stages into it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.spec.diagnostics import SpecError
from pipelines.spec.load import load_pipeline
from pipelines.spec.nodes import Pipeline, StageNode
from pipelines.spec.planned import Plan
from stages.catalog import STAGES
from stages.contract import FileEntry, ReportArtifact
from stages.store.layout import StagePaths
from stages.store.local import LocalStore
from stages.store.manifest import Manifest, write_spec
from stages.store.progress import StoreProgress
from stages.store.provenance import Provenance
from stages.store.records import encode

PIPELINE = """\
version: 1
name: small
params:
  seed: {type: int, default: 7}
  base_model: {type: model_source, default: base}
stages:
  data:
    uses: prepare
    with: {source: rows.jsonl, num_train: 8, num_held_out: 4, seed: "${params.seed}"}
  sft:
    uses: sft
    inputs: {model: "${params.base_model}", dataset: "${stages.data.outputs.train}"}
    with:
      model: {lora: {rank: 2, alpha: 4}}
      optimizer: {learning_rate: 1e-3}
      num_steps: 4
      batch_size: 8
      seed: "${params.seed}"
  eval_base:
    uses: evaluation
    inputs: {model: "${params.base_model}", dataset: "${stages.data.outputs.held_out}"}
    with: {sampling: {temperature: 0, max_response_tokens: 4}}
  eval_sft:
    uses: evaluation
    inputs: {model: "${stages.sft.outputs.checkpoint}", dataset: "${stages.data.outputs.held_out}"}
    with: {sampling: {temperature: 0, max_response_tokens: 4}}
  gate:
    gate: eval
    inputs: {report: "${stages.eval_sft.outputs.report}"}
    require: ["accuracy >= 0.5", "delta_low(accuracy, '${stages.eval_base.outputs.report}') > 0"]
"""


@pytest.fixture
def pipeline_file(tmp_path: Path) -> Path:
    """The small pipeline, with the external inputs that it names beside it."""
    folder = tmp_path / "project"
    (folder / "base").mkdir(parents=True)
    (folder / "base" / "config.json").write_text("{}")
    (folder / "rows.jsonl").write_text("{}\n")
    (folder / "pyproject.toml").touch()
    path = folder / "small.yaml"
    path.write_text(PIPELINE)
    return path


@pytest.fixture
def load(pipeline_file: Path) -> Callable[..., Pipeline]:
    """Loads the small pipeline with text in it replaced, and with overrides and a profile."""

    def load(*overrides: str, profile: str | None = None, replace: dict[str, str] | None = None) -> Pipeline:
        text = PIPELINE
        for old, new in (replace or {}).items():
            assert old in text
            text = text.replace(old, new, 1)
        pipeline_file.write_text(text)
        return load_pipeline(pipeline_file, profile=profile, overrides=overrides)

    return load


@pytest.fixture
def errors(load: Callable[..., Pipeline], pipeline_file: Path) -> Callable[..., list[str]]:
    """The diagnostics of loading the small pipeline, without the name of the file."""

    def errors(*overrides: str, profile: str | None = None, replace: dict[str, str] | None = None) -> list[str]:
        with pytest.raises(SpecError) as raised:
            load(*overrides, profile=profile, replace=replace)
        return [str(diagnostic).removeprefix(f"{pipeline_file}:") for diagnostic in raised.value.diagnostics]

    return errors


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


NOWHERE = Provenance(argv=(), git_revision=None, packages={}, host="here", python="3", system="test")
ATTEMPT = "000001-abc"


@pytest.fixture
def commit(store: LocalStore, tmp_path: Path) -> Callable[..., Manifest]:
    """Commits two small files for each output of a planned stage, as its run would; its report has the metrics."""

    def commit(plan: Plan, stage: str, metrics: dict[str, float] | None = None) -> Manifest:
        planned = plan.nodes[stage]
        assert isinstance(planned.node, StageNode)
        assert planned.payload is not None
        assert planned.key is not None
        paths = StagePaths(planned.node.kind, planned.key)
        write_spec(store, paths, planned.payload)
        outputs: dict[str, tuple[FileEntry, ...]] = {}
        for output in STAGES[planned.node.kind].outputs:
            entries: list[FileEntry] = []
            for name in ("artifact.json", "data.bin"):
                source = tmp_path / "upload"
                is_report = (output, name) == ("report", "artifact.json")
                report = ReportArtifact(metrics=metrics or {}).model_dump_json()
                source.write_text(report if is_report else f"{stage} {output} {name}")
                entry = store.upload(f"{paths.attempt(ATTEMPT).out(output)}/{name}", source)
                entries.append(entry.model_copy(update={"path": name}))
            outputs[output] = tuple(entries)
        manifest = Manifest(
            stage=planned.node.kind,
            key=planned.key,
            version=STAGES[planned.node.kind].version,
            attempt=ATTEMPT,
            epoch=1,
            outputs=outputs,
            numbers={},
            inputs={},
            created="2026-01-01T01:00:00+00:00",
            seconds=1.0,
            provenance=NOWHERE,
        )
        store.create(paths.manifest, encode(manifest))
        return manifest

    return commit


@pytest.fixture
def commit_all(commit: Callable[..., Manifest]) -> Callable[[Plan], dict[str, Manifest]]:
    """Commits every stage that a plan runs; the manifests by key."""

    def commit_all(plan: Plan) -> dict[str, Manifest]:
        made = [commit(plan, node) for node, planned in plan.nodes.items() if planned.decision == "run"]
        return {manifest.key: manifest for manifest in made}

    return commit_all


@pytest.fixture
def save_progress(store: LocalStore) -> Callable[[Plan, str, int], None]:
    """Commits a step of an attempt that did not finish."""

    def save_progress(plan: Plan, stage: str, step: int) -> None:
        planned = plan.nodes[stage]
        assert isinstance(planned.node, StageNode)
        assert planned.key is not None
        paths = StagePaths(planned.node.kind, planned.key)
        store.create(f"{paths.attempt(ATTEMPT).progress(step)}/state", b"weights")
        StoreProgress(store, paths, ATTEMPT, (), lambda: None).commit(step)

    return save_progress
