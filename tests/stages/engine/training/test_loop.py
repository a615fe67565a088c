"""The loop: what it records, saves and resumes, with a loss that takes no time."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jaxtyping import Array, Float
from stage_trial import StageTrial, StopAfter

from stages.contract import ProgressArea, Saving, StageConfigBase
from stages.engine.checkpoints.store import ProgressWriter
from stages.engine.cluster.peak import peak_flops
from stages.engine.data.loader import batch_rows
from stages.engine.models.lora import Weights
from stages.engine.models.transformer import Cells
from stages.engine.training.config import AdamWConfig
from stages.engine.training.loop import FLOPS, SKIPPED, TOKENS, Numbers, train
from stages.engine.training.optimizer import make_rule
from stages.engine.training.state import TrainState, advance, start_state
from stages.engine.training.step import Loss, make_gradient, make_update
from stages.errors import PreemptedError, UserError
from stages.store.progress import StoreProgress, committed_points

NUM_STEPS = 7
TARGETS = jnp.linspace(-1.0, 1.0, 5 * 3).reshape(5, 3)
RULE = make_rule(AdamWConfig(learning_rate=0.1, warmup_steps=2, decay="cosine"), NUM_STEPS)


def loss(weights: Weights, base: Cells, batch: Float[Array, "B 3"]) -> Loss:
    squares = jnp.square(weights["a"] * weights["b"] - batch)
    return Loss(squares.sum(), jnp.float32(batch.size), {})


gradient, update = make_gradient(loss), make_update(RULE)


class Run:
    """Attempts of one identity; `executed` are the steps of the newest."""

    def __init__(self, folder: Path, seed: int = 3, num_steps: int = NUM_STEPS, save_every_steps: int = 2) -> None:
        self.trial = StageTrial(folder, "sft", StageConfigBase(), {})
        self.seed = seed
        self.num_steps = num_steps
        self.save_every_steps = save_every_steps
        self.rule = RULE
        self.executed: list[int] = []

    def start(self) -> TrainState:
        weights = {"a": jnp.array([0.3, -0.2, 0.9]), "b": jnp.ones(3)}
        return start_state(weights, RULE, self.seed)

    def step(self, done: int, state: TrainState) -> tuple[TrainState, Numbers]:
        self.executed.append(done + 1)
        rows = batch_rows(len(TARGETS), 2, self.seed, done)
        summed = gradient(state.weights, nnx.State({}), TARGETS[np.array(rows)])
        applied = update(state.weights, state.optimizer, summed)
        counters = advance(state.counters, updates=1, rows=len(rows), tokens=6)
        numbers: Numbers = {"loss/nll": summed.loss.total / summed.loss.denominator, TOKENS: 6}
        numbers = {**numbers, FLOPS: 1e6, SKIPPED: applied.skipped}
        return TrainState(applied.weights, applied.optimizer, state.best, counters), numbers

    def show(self, done: int) -> list[str]:
        return [f'{{"row": {row}}}' for row in batch_rows(len(TARGETS), 2, self.seed, done)]

    def attempt(self, stop_after: int = 10**6) -> TrainState:
        self.executed = []
        context = self.trial.context(StopAfter(stop_after))
        try:
            return train(
                context,
                self.start(),
                rule=self.rule,
                num_steps=self.num_steps,
                save_every_steps=self.save_every_steps,
                step=self.step,
                show=self.show,
            )
        finally:
            context.flush_metrics()

    def losses(self) -> list[tuple[int, float]]:
        return [(row.step, row.numbers["loss/nll"]) for row in self.trial.metrics()]

    def saved(self) -> list[int]:
        return [point.step for point in committed_points(self.trial.store, self.trial.paths)]


def assert_same(one: TrainState, other: TrainState) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for found, expected in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("stops", [(3,), (1, 1, 1), (2, 4), (6,)])
def test_a_run_that_was_stopped_and_resumed_ends_in_the_same_bits(tmp_path: Path, stops: Sequence[int]) -> None:
    whole, parts = Run(tmp_path / "whole"), Run(tmp_path / "parts")
    expected = whole.attempt()
    done = 0
    for steps in stops:
        with pytest.raises(PreemptedError, match=f"stopped after step {done + steps} of 7; progress is saved"):
            parts.attempt(stop_after=steps)
        assert parts.executed == list(range(done + 1, done + steps + 1))
        done += steps
    found = parts.attempt()
    assert parts.executed == list(range(done + 1, NUM_STEPS + 1))
    assert_same(found, expected)
    assert (found.counters.step, found.counters.updates, found.counters.rows, found.counters.tokens) == (7, 7, 14, 42)
    assert parts.losses() == whole.losses()


def test_every_step_is_recorded_once_in_order_with_its_own_numbers(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.attempt()
    steps, losses = zip(*run.losses(), strict=True)
    assert steps == tuple(range(1, NUM_STEPS + 1))
    assert len(set(losses)) == NUM_STEPS
    row = run.trial.metrics()[0].numbers
    np.testing.assert_allclose(row["throughput/tokens_per_second"] * row["throughput/step_seconds"], 6.0, rtol=1e-5)
    work = row["throughput/share_of_peak"] * row["throughput/step_seconds"] * peak_flops()
    np.testing.assert_allclose(work, 1e6, rtol=1e-5)
    assert row["throughput/memory_gib"] > 0
    assert {TOKENS, FLOPS}.isdisjoint(row)


def test_the_times_of_steps_are_their_own_also_where_a_step_waits_for_its_numbers(tmp_path: Path) -> None:
    run, step = Run(tmp_path, save_every_steps=3), Run.step

    def slow(done: int, state: TrainState) -> tuple[TrainState, Numbers]:
        time.sleep(0.1)
        state, numbers = step(run, done, state)
        return state, {name: float(value) for name, value in numbers.items()}

    run.step = slow
    run.attempt()
    assert all(row.numbers["throughput/step_seconds"] > 0.1 for row in run.trial.metrics())


def test_the_first_recorded_loss_is_that_of_the_start(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.attempt()
    rows = np.array(batch_rows(len(TARGETS), 2, run.seed, 0))
    expected = np.square(np.array([0.3, -0.2, 0.9]) - np.asarray(TARGETS)[rows]).mean()
    np.testing.assert_allclose(run.losses()[0][1], expected, rtol=1e-6)


@pytest.mark.parametrize(("every", "saves"), [(1, [1, 2, 3, 4, 5, 6, 7]), (3, [3, 6, 7]), (100, [7]), (7, [7])])
def test_steps_are_saved_as_often_as_asked_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int, saves: list[int]
) -> None:
    committed: list[int] = []
    commit = StoreProgress.commit

    def record(area: StoreProgress, step: int) -> None:
        commit(area, step)
        committed.append(step)

    monkeypatch.setattr(StoreProgress, "commit", record)
    Run(tmp_path, save_every_steps=every).attempt()
    assert committed == saves


def test_a_step_is_saved_too_when_the_last_save_is_too_long_ago(tmp_path: Path) -> None:
    run = Run(tmp_path, save_every_steps=100)
    run.trial.saving = Saving(every_seconds=0.0, keep_last=3)
    run.attempt()
    assert run.saved() == [7, 6, 5]


def test_metrics_up_to_a_saved_step_are_stored_before_the_step_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, seen = Run(tmp_path, save_every_steps=3), dict[int, list[int]]()
    commit = StoreProgress.commit

    def look(area: StoreProgress, step: int) -> None:
        commit(area, step)
        seen[step] = [row.step for row in run.trial.metrics()]

    monkeypatch.setattr(StoreProgress, "commit", look)
    run.attempt()
    assert list(seen) == [3, 6, 7]
    assert all(steps[:step] == list(range(1, step + 1)) for step, steps in seen.items())


def test_a_finished_run_that_is_started_again_executes_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path)
    expected = run.attempt()
    assert_same(run.attempt(), expected)
    assert run.executed == []


def test_a_stop_at_the_last_step_is_no_stop(tmp_path: Path) -> None:
    assert Run(tmp_path).attempt(stop_after=NUM_STEPS).counters.step == NUM_STEPS


def spoil(folder: Path) -> None:
    """Other bytes of the same length in every file, at the same time: a disk that forgets."""
    for path in folder.rglob("*"):
        if path.is_file():
            stat = path.stat()
            with path.open("r+b") as file:
                file.write(bytes(255 - byte for byte in path.read_bytes()))
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_a_newest_step_that_cannot_be_read_gives_way_to_the_one_before(tmp_path: Path) -> None:
    whole, run = Run(tmp_path / "whole"), Run(tmp_path / "spoilt")
    expected = whole.attempt()
    with pytest.raises(PreemptedError):
        run.attempt(stop_after=5)
    assert run.saved() == [5, 4]
    newest = committed_points(run.trial.store, run.trial.paths)[0]
    spoil(run.trial.store.root / run.trial.paths.attempt(newest.attempt).progress(5))
    assert run.saved() == [5, 4]
    assert_same(run.attempt(), expected)
    assert run.executed == [5, 6, 7]
    assert run.losses() == whole.losses()


def test_progress_of_another_seed_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path, seed=3)
    with pytest.raises(PreemptedError):
        run.attempt(stop_after=2)
    run.seed = 4
    with pytest.raises(UserError, match="checkpoint of step 2 with seed 4 holds step 2 and seed 3"):
        run.attempt()
    assert run.executed == []


def test_progress_that_holds_another_step_than_its_record_says_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path)
    area: ProgressArea = run.trial.context().progress
    writer = ProgressWriter(area)
    writer.save(3, run.start())
    writer.close()
    with pytest.raises(UserError, match="checkpoint of step 3 with seed 3 holds step 0 and seed 3"):
        run.attempt()


def test_a_loss_that_is_not_finite_ends_the_run_and_names_its_step(tmp_path: Path) -> None:
    run = Run(tmp_path)
    step = run.step

    def diverge(done: int, state: TrainState) -> tuple[TrainState, Numbers]:
        state, numbers = step(done, state)
        return state, {**numbers, "loss/nll": jnp.float32(jnp.nan if done == 2 else 1.0)}

    run.step = diverge
    with pytest.raises(UserError, match="loss/nll is nan at step 3: the run diverged"):
        run.attempt()
    assert run.saved() == [2]


class Diverging(Run):
    """Some steps see a row that is no number."""

    bad: tuple[int, ...] = (3, 5)

    def step(self, done: int, state: TrainState) -> tuple[TrainState, Numbers]:
        self.executed.append(done + 1)
        row = TARGETS[:2] * (jnp.nan if done + 1 in self.bad else 1.0)
        summed = gradient(state.weights, nnx.State({}), row)
        applied = update(state.weights, state.optimizer, summed)
        counters = advance(state.counters, updates=1, rows=2, tokens=6)
        nll = summed.loss.total / summed.loss.denominator
        numbers: Numbers = {"loss/nll": nll, TOKENS: 6, SKIPPED: applied.skipped}
        return TrainState(applied.weights, applied.optimizer, state.best, counters), numbers


def test_steps_that_are_no_finite_number_are_skipped_and_their_rows_kept(tmp_path: Path) -> None:
    run = Diverging(tmp_path, save_every_steps=100)
    end = run.attempt()
    assert (int(end.optimizer.skipped), int(end.optimizer.applied)) == (2, NUM_STEPS - 2)
    rows = {row.step: row.numbers for row in run.trial.metrics()}
    assert [step for step, numbers in rows.items() if "loss/nll" not in numbers] == [3, 5]
    kept = run.trial.store.get(f"{run.trial.paths.attempts}/000001-trial/kept/skipped-000003.jsonl")
    assert kept is not None
    assert kept.data.decode().splitlines() == run.show(2)


def test_one_skipped_step_too_many_ends_the_run_with_its_rows_kept_also_when_it_was_resumed(tmp_path: Path) -> None:
    run = Diverging(tmp_path, save_every_steps=2)
    run.rule = RULE._replace(max_skipped=1)
    with pytest.raises(PreemptedError):
        run.attempt(stop_after=4)
    with pytest.raises(UserError, match=r"step 5: loss or gradient is NaN .* kept in .*/kept/skipped-000005.jsonl"):
        run.attempt()
    assert run.trial.store.get(f"{run.trial.paths.attempts}/000002-trial/kept/skipped-000005.jsonl") is not None


def test_a_fault_within_a_step_loses_no_numbers_of_the_steps_before(tmp_path: Path) -> None:
    run, step = Run(tmp_path), Run.step

    def fail(done: int, state: TrainState) -> tuple[TrainState, Numbers]:
        if done == 3:
            raise UserError("the loss on `validation` is nan")
        return step(run, done, state)

    run.step = fail
    with pytest.raises(UserError, match="validation"):
        run.attempt()
    assert [row.step for row in run.trial.metrics()] == [1, 2, 3]
