from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.spec.drift import drift_since
from pipelines.spec.nodes import Pipeline
from pipelines.spec.plan import make_plan
from pipelines.spec.plan_text import plan_text
from pipelines.spec.planned import Plan
from stages.source_digest import source_files
from stages.store.local import LocalStore
from stages.store.manifest import Manifest

Load = Callable[..., Pipeline]
Commit = Callable[[Plan, str], Manifest]


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def with_source(load: Load, store: LocalStore, commit: Commit) -> Callable[[dict[str, str]], Manifest]:
    """A committed `sft` that recorded these digests beside those of today's files."""

    def with_source(recorded: dict[str, str]) -> Manifest:
        manifest = commit(make_plan(load(), store), "sft")
        files = {name: digest for name, digest in {**source_files("sft"), **recorded}.items() if digest}
        provenance = manifest.provenance.model_copy(update={"source_files": files})
        return manifest.model_copy(update={"provenance": provenance})

    return with_source


@pytest.mark.parametrize(
    ("recorded", "told"),
    [
        ({}, ""),
        ({"stages/sft/run.py": "other"}, "stages/sft/"),
        ({"stages/sft/run.py": "other", "stages/sft/config.py": ""}, "stages/sft/"),
        ({"stages/sft/run.py": "other", "stages/errors.py": "other"}, "stages/sft/ and 1 more file"),
        ({"stages/errors.py": ""}, "stages/errors.py"),
        ({"stages/a.py": "gone", "stages/b.py": "gone", "stages/errors.py": "x"}, "stages/a.py and 2 more files"),
    ],
)
def test_files_that_changed_appeared_or_went_are_drift(
    with_source: Callable[[dict[str, str]], Manifest], recorded: dict[str, str], told: str
) -> None:
    end = " changed since version=1 committed this (bump version to separate)"
    assert drift_since(with_source(recorded)) == (f"{told}{end}" if told else "")


def test_a_commit_without_a_record_of_its_source_has_no_drift(load: Load, store: LocalStore, commit: Commit) -> None:
    assert drift_since(commit(make_plan(load(), store), "sft")) == ""


def test_a_plan_reuses_in_spite_of_drift_and_says_so(
    load: Load, store: LocalStore, commit: Commit, with_source: Callable[[dict[str, str]], Manifest]
) -> None:
    manifest = with_source({"stages/sft/run.py": "other"})
    stored = store.get(manifest.paths.manifest)
    assert stored is not None
    store.swap(manifest.paths.manifest, manifest.model_dump_json().encode(), stored.generation)
    plan = make_plan(load(), store)
    assert plan.nodes["sft"].decision == "reuse"
    assert "01:00:00 UTC; drift: stages/sft/ changed since version=1" in plan_text(plan)
