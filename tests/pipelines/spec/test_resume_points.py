"""Whose saved steps a plan has a stage go on from."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.spec.nodes import Pipeline
from pipelines.spec.plan import make_plan
from pipelines.spec.planned import Plan
from stages.store.attempts import AttemptRecord, write_attempt
from stages.store.holder import this_holder
from stages.store.layout import StagePaths
from stages.store.local import LocalStore

Load = Callable[..., Pipeline]
SaveProgress = Callable[[Plan, str, int], None]

RUN = "20260131T174500Z-1234abcd"
ATTEMPT = "000001-abc"


@pytest.fixture
def saved(
    load: Load, store: LocalStore, save_progress: SaveProgress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> StagePaths:
    """The stage `data` with step 2 saved by an attempt of the run."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    plan = make_plan(load(), store)
    save_progress(plan, "data", 2)
    key = plan.nodes["data"].key
    assert key is not None
    paths = StagePaths("prepare", key)
    record = AttemptRecord(attempt=ATTEMPT, holder=this_holder(), started="2026-01-31T17:45:00+00:00", run_id=RUN)
    write_attempt(store, paths, record)
    return paths


@pytest.mark.parametrize(
    ("policy", "run_id", "decision"),
    [
        ("eager", None, "resume"),
        ("fresh", None, "run"),
        ("fresh", "20260201T000000Z-00000000", "run"),
        ("fresh", RUN, "resume"),
        ("none", RUN, "run"),
    ],
)
def test_the_policy_says_whose_steps_count(
    load: Load, store: LocalStore, saved: StagePaths, policy: str, run_id: str | None, decision: str
) -> None:
    plan = make_plan(load(f"stages.data.resume.policy={policy}"), store, run_id=run_id)
    assert plan.nodes["data"].decision == decision


def test_a_newer_step_that_does_not_count_is_told(load: Load, store: LocalStore, saved: StagePaths) -> None:
    store.create(f"{saved.attempt(ATTEMPT).progress(5)}/state", b"half of it")
    reason = make_plan(load(), store).nodes["data"].reason
    assert reason == f"from step 2 of attempt 000001; step 5 of attempt {ATTEMPT} was never committed"
