from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.spec.amounts import describe_size, describe_time
from pipelines.spec.nodes import Pipeline, StageNode
from pipelines.spec.plan import make_plan
from pipelines.spec.plan_text import plan_text
from pipelines.spec.planned import Plan
from stages.store.local import LocalStore
from stages.store.manifest import Manifest
from stages.store.records import write_record

Load = Callable[..., Pipeline]
Commit = Callable[..., Manifest]


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def took(load: Load, store: LocalStore, commit: Commit) -> Callable[..., Manifest]:
    """Commits a stage of the pipeline with overrides, as a run would that took so many seconds."""

    def took(stage: str, seconds: float, *overrides: str, steps: int | None = None) -> Manifest:
        manifest = commit(make_plan(load(*overrides), store), stage)
        timed = manifest.model_copy(update={"seconds": seconds, "num_steps": steps})
        write_record(store, manifest.paths.manifest, timed)
        return timed

    return took


def size(manifest: Manifest) -> int:
    return sum(entry.size for entries in manifest.outputs.values() for entry in entries)


def told(plan: Plan) -> str:
    lines = [line for line in plan_text(plan).splitlines() if line.startswith("estimate: ")]
    return lines[0].removeprefix("estimate: ") if lines else ""


def test_a_kind_that_was_never_committed_has_no_estimate(load: Load, store: LocalStore) -> None:
    plan = make_plan(load(), store)
    assert plan.estimate.unknown == ("data", "sft", "eval_base", "eval_sft")
    assert told(plan) == "no estimate for prepare, sft, evaluation: never committed here"


def test_steps_are_counted_from_the_one_that_is_saved(
    load: Load, store: LocalStore, took: Callable[..., Manifest], save_progress: Callable[..., None]
) -> None:
    made = took("sft", 40.0)
    plan = make_plan(load("stages.sft.with.num_steps=100"), store)
    assert plan.estimate.stages["sft"].seconds == 1000.0
    assert plan.estimate.stages["sft"].bytes == size(made)
    save_progress(plan, "sft", 90)
    assert make_plan(load("stages.sft.with.num_steps=100"), store).estimate.stages["sft"].seconds == 100.0


def test_the_steps_that_an_attempt_executed_count_not_those_that_it_resumed_after(
    load: Load, store: LocalStore, took: Callable[..., Manifest]
) -> None:
    took("sft", 40.0, steps=2)
    assert make_plan(load("stages.sft.with.num_steps=100"), store).estimate.stages["sft"].seconds == 2000.0


def test_the_nearest_commits_count_and_their_median(
    load: Load, store: LocalStore, took: Callable[..., Manifest]
) -> None:
    for seed, seconds in enumerate((1.0, 2.0, 3.0, 4.0, 100.0)):
        took("sft", seconds, f"stages.sft.with.seed={seed}")
    for seed in range(6):
        took("sft", 9999.0, f"stages.sft.with.seed={seed}", "stages.sft.with.batch_size=16", "stages.sft.rev=3")
    estimate = make_plan(load("stages.sft.with.seed=9"), store).estimate.stages["sft"]
    assert (estimate.seconds, estimate.num_commits) == (3.0, 5)


def test_a_stage_without_steps_takes_what_it_took(load: Load, store: LocalStore, took: Callable[..., Manifest]) -> None:
    took("eval_base", 30.0)
    plan = make_plan(load(), store)
    assert plan.estimate.stages["eval_sft"].seconds == 30.0
    assert plan.estimate.saved_seconds == 30.0


def test_the_text_adds_up_what_runs_and_what_is_saved(
    load: Load, store: LocalStore, took: Callable[..., Manifest]
) -> None:
    made = [took("data", 400.0), took("sft", 300.0), took("eval_base", 60.0)]
    plan = make_plan(load(), store)
    assert told(plan) == f"60 s from the last commit of each stage; {size(made[2])} B new; 3 stages reused saves 13 min"
    took("eval_sft", 70.0)
    plan = make_plan(load(), store)
    assert told(plan) == ""
    assert plan.estimate.num_reused == 4


def test_a_stage_whose_key_is_not_known_is_estimated_too(
    load: Load, store: LocalStore, took: Callable[..., Manifest]
) -> None:
    took("sft", 40.0)
    pipeline = load()
    node = pipeline.nodes["sft"]
    assert isinstance(node, StageNode)
    refreshed = replace(pipeline, nodes={**pipeline.nodes, "sft": replace(node, cache="refresh")})
    assert make_plan(refreshed, store).estimate.stages["sft"].seconds == 40.0


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (89.0, "89 s"), (90.0, "2 min"), (5000.0, "83 min"), (21600.0, "6.0 h")]
)
def test_times_have_the_unit_that_they_are_read_in(seconds: float, text: str) -> None:
    assert describe_time(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (34_200_000, "34 MB"), (999_600, "1.0 MB"), (2 * 10**15, "2000 TB")],
)
def test_sizes_have_the_unit_that_they_are_read_in(size: int, text: str) -> None:
    assert describe_size(size) == text
