"""Resumable state in the progress area."""

import shutil
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from stage_trial import StageTrial

from stages.contract import ProgressPoint, StageConfigBase
from stages.engine.checkpoints import store as store_module
from stages.engine.checkpoints.store import ProgressWriter, restore_newest
from stages.errors import StorageError
from stages.store.conditional import open_store
from stages.store.layout import StagePaths
from stages.store.progress import StoreProgress, committed_points


class State(NamedTuple):
    weights: dict[str, Float[Array, "..."]]
    nested: "tuple[State | None, int]"
    step: int


def state(value: float) -> State:
    inner = State({"b": jnp.full((2, 3), -value)}, (None, 7), 2)
    return State({"a.x": jnp.arange(5.0) * value, "b.y": jnp.float32(value)}, (inner, 1), int(value))


def accept(found: State, point: ProgressPoint) -> None:
    assert found.step == point.step


def assert_same(one: State, other: State) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for found, expected in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.fixture
def trial(tmp_path: Path) -> StageTrial:
    return StageTrial(tmp_path, "sft", StageConfigBase(), {})


def saved(trial: StageTrial) -> list[int]:
    return [point.step for point in committed_points(trial.store, trial.paths)]


def save(trial: StageTrial, *steps: int) -> None:
    writer = ProgressWriter(trial.context().progress)
    for step in steps:
        writer.save(step, state(step))
    writer.close()


def test_a_tree_of_arrays_and_counters_comes_back_with_its_structure_and_bits(trial: StageTrial) -> None:
    save(trial, 3)
    found = restore_newest(trial.context().progress, state(0), accept)
    assert found is not None
    assert isinstance(found.nested[0], State)
    assert_same(found, state(3))


def test_what_was_compiled_for_a_state_serves_it_when_it_is_restored(trial: StageTrial) -> None:
    save(trial, 3)
    found = restore_newest(trial.context().progress, state(0), accept)
    assert found is not None
    fresh, restored = (jax.jit(lambda x: x * 2).lower(one.weights["a.x"]).as_text() for one in (state(3), found))
    assert restored == fresh


def test_without_a_committed_point_there_is_nothing(trial: StageTrial) -> None:
    assert restore_newest(trial.context().progress, state(0), accept) is None


def test_the_newest_step_wins_and_older_ones_are_kept_to_fall_back_on(trial: StageTrial) -> None:
    save(trial, 1, 2, 3)
    assert saved(trial) == [3, 2]
    found = restore_newest(trial.context().progress, state(0), accept)
    assert found is not None
    assert found.step == 3


def test_a_step_whose_record_was_not_written_does_not_exist(trial: StageTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    save(trial, 1)
    with monkeypatch.context() as patch:
        patch.setattr(StoreProgress, "commit", lambda area, step: None)
        save(trial, 2)
    assert (trial.store.root / trial.paths.attempt("000002-trial").progress(2)).is_dir()
    assert saved(trial) == [1]
    found = restore_newest(trial.context().progress, state(0), accept)
    assert found is not None
    assert found.step == 1


def test_points_that_cannot_be_read_are_passed_over_until_none_is_left(
    trial: StageTrial, caplog: pytest.LogCaptureFixture
) -> None:
    save(trial, 1, 2)
    area = trial.context().progress
    for step, expected in ((2, 1), (1, None)):
        folder = trial.store.root / trial.paths.attempt("000001-trial").progress(step)
        shutil.rmtree(folder)
        caplog.clear()
        found = restore_newest(area, state(0), accept)
        assert (found.step if found else None) == expected
        assert f"step {step} of attempt 000001-trial cannot be read, trying the next" in caplog.text


def test_a_state_of_another_structure_is_passed_over_with_a_warning(
    trial: StageTrial, caplog: pytest.LogCaptureFixture
) -> None:
    save(trial, 1)
    other = state(0)._replace(weights={"a.x": jnp.zeros(5), "another": jnp.float32(0)})
    assert restore_newest(trial.context().progress, other, accept) is None
    assert "cannot be read" in caplog.text


def test_a_save_that_fails_is_told_by_the_next_call(trial: StageTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(area: StoreProgress, step: int) -> None:
        raise StorageError(f"no room for step {step}")

    monkeypatch.setattr(StoreProgress, "commit", fail)
    writer = ProgressWriter(trial.context().progress)
    writer.save(1, state(1))
    with pytest.raises(StorageError, match="no room for step 1"):
        writer.save(2, state(2))
    writer.save(3, state(3))
    with pytest.raises(StorageError, match="no room for step 3"):
        writer.close()


def test_progress_lies_in_a_bucket_as_on_a_disk(gcs_store_uri: str) -> None:
    store, paths = open_store(gcs_store_uri), StagePaths("sft", "0" * 64)
    area = StoreProgress(store, paths, "000001-a", (), before_commit=lambda: None)
    writer = ProgressWriter(area)
    writer.save(4, state(4))
    writer.close()
    points = committed_points(store, paths)
    later = StoreProgress(store, paths, "000002-b", points, before_commit=lambda: None)
    found = restore_newest(later, state(0), accept)
    assert found is not None
    assert_same(found, state(4))


def fail_first(monkeypatch: pytest.MonkeyPatch, failures: list[Exception]) -> list[str]:
    """Restoring fails with each of these in turn, then works; returns where to look for what was restored."""
    restore, restored = store_module._restore, []

    def flaky(uri: str, template: State) -> State:
        restored.append(uri)
        if failures:
            raise failures.pop(0)
        return restore(uri, template)

    monkeypatch.setattr(store_module, "_restore", flaky)
    monkeypatch.setattr(store_module, "RETRY_SECONDS", (0.0, 0.0))
    return restored


def test_a_bucket_that_does_not_answer_for_a_while_costs_no_step(
    gcs_store_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gcsfs.retry import HttpError

    store, paths = open_store(gcs_store_uri), StagePaths("sft", "0" * 64)
    writer = ProgressWriter(StoreProgress(store, paths, "000001-a", (), before_commit=lambda: None))
    for step in (4, 5):
        writer.save(step, state(step))
    writer.close()
    points = committed_points(store, paths)
    later = StoreProgress(store, paths, "000002-b", points, before_commit=lambda: None)
    failures = [HttpError({"code": 503, "message": "later"}), ValueError("UNAVAILABLE")]
    restored = fail_first(monkeypatch, failures)
    found = restore_newest(later, state(0), accept)
    assert found is not None
    assert (found.step, len(restored)) == (5, 3)
    failures.extend([OSError("gone")] * 3)
    found = restore_newest(later, state(0), accept)
    assert found is not None
    assert found.step == 4


def test_a_local_disk_is_asked_once(trial: StageTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    save(trial, 1, 2)
    restored = fail_first(monkeypatch, [OSError("unreadable")])
    found = restore_newest(trial.context().progress, state(0), accept)
    assert found is not None
    assert (found.step, len(restored)) == (1, 2)


def test_errors_of_the_client_of_buckets_while_saving_are_storage_errors(
    trial: StageTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gcsfs.retry import HttpError

    def fail(*_: object) -> None:
        raise HttpError({"code": 503, "message": "later"})

    writer = ProgressWriter(trial.context().progress)
    monkeypatch.setattr(writer._checkpointer, "save", fail)
    with pytest.raises(StorageError, match=r"saving step 1 failed: later, 503; look at the storage"):
        writer.save(1, state(1))
