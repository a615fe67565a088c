"""Stages in two processes that find each other on loopback: the same as in one, and resumable."""

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from stage_trial import TINY, StageTrial, StopAfter, coin_rows, external, stored_rows

from flows.cli import main
from stages.contract import Beat
from stages.engine.models.config import LoraConfig, TrainedModelConfig
from stages.engine.models.lora import ADAPTER_FILE
from stages.engine.training.config import AdamWConfig
from stages.errors import PreemptedError
from stages.sft.config import SftConfig
from stages.store.conditional import ConditionalStore, open_store
from stages.store.layout import StagePaths
from stages.store.manifest import read_manifest
from stages.store.progress import committed_points
from stages.store.runs import RunRecord, latest_run
from tasks.launchers.launcher import Launch
from tasks.launchers.local_group import LocalGroup
from tasks.lost_lease import LostLease
from tasks.stopping import StopSignal
from tasks.supervise import BeatWatch, Deadlines, Ending, supervise

PIPELINES = Path(__file__).parents[2] / "pipelines"
CONFIG = SftConfig(
    model=TrainedModelConfig(lora=LoraConfig(rank=8, alpha=16)),
    optimizer=AdamWConfig(learning_rate=1e-2, warmup_steps=3),
    num_steps=40,
    batch_size=6,
    seed=5,
    train_micro_batch=2,
    save_every_steps=5,
)
LOSS_RTOL, WEIGHTS_ATOL = 1e-4, 1e-3
"""Sums of two devices round otherwise than those of one, and training spreads it."""


def new_trial(folder: Path) -> StageTrial:
    rows = stored_rows(folder, coin_rows(30, lambda n: str(n // 3 % 2)))
    return StageTrial(folder, "sft", CONFIG, {"model": external(TINY), "dataset": rows})


def run_on_two(trial: StageTrial, stop: StopSignal, on_step: Callable[[LocalGroup, int], None]) -> Ending:
    """The next attempt of a trial in two processes; `on_step` hears of each step done."""
    started = threading.Event()

    def heard(beat: Beat) -> None:
        assert started.wait(60)
        on_step(group, beat.step)

    watch = BeatWatch(heard)
    request = trial.request()
    lines: list[str] = []
    group = LocalGroup(Launch(request, None, "cpu", on_line=lines.append, on_beat=watch, num_processes=2))
    started.set()
    ending = supervise(group, watch, Deadlines(240, 240, 60), stop, LostLease())
    assert ending.cause != "bug", "\n".join(lines)
    return ending


def adapter(scratch: Path) -> dict[str, np.ndarray]:
    return load_file(scratch / "out" / "checkpoint" / ADAPTER_FILE)


def numbers(trial: StageTrial, name: str) -> np.ndarray:
    rows = trial.metrics()
    assert [row.step for row in rows] == list(range(1, CONFIG.num_steps + 1))
    return np.array([row.numbers[name] for row in rows])


class Whole:
    """The same training in one process, uninterrupted."""

    def __init__(self, folder: Path) -> None:
        self.trial = new_trial(folder)
        self.adapter = load_file(self.trial.run().output_dir("checkpoint") / ADAPTER_FILE)

    def check(self, trial: StageTrial, found: dict[str, np.ndarray]) -> None:
        """That another training came to the same end on the same way."""
        for name in ("loss/nll", "optimizer/grad_norm"):
            np.testing.assert_allclose(numbers(trial, name), numbers(self.trial, name), rtol=LOSS_RTOL, err_msg=name)
        assert found.keys() == self.adapter.keys()
        for name, value in self.adapter.items():
            np.testing.assert_allclose(found[name], value, atol=WEIGHTS_ATOL, err_msg=name)


@pytest.fixture(autouse=True)
def _quickly_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX keeps no programs of processes other than the first: they compile theirs in every run."""
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "true")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(tmp_path_factory.mktemp("whole"))


def test_after_a_kill_nothing_of_two_processes_runs_and_one_resumes_what_both_saved(
    whole: Whole, tmp_path: Path
) -> None:
    trial = new_trial(tmp_path)

    def kill_at_twelve(group: LocalGroup, step: int) -> None:
        if step == 12:
            group._members[1].kill()

    ending = run_on_two(trial, StopSignal(), kill_at_twelve)
    assert (ending.cause, ending.message) == ("infra", "process 1 of 2: killed by SIGKILL")
    saved = committed_points(trial.store, trial.paths)[0].step
    assert 5 <= saved < CONFIG.num_steps
    folder = Path(trial.store.location(trial.paths.attempt("000001-trial").progress(saved)))
    for process in range(2):
        shares = (folder / f"ocdbt.process_{process}" / "d").iterdir()
        assert sum(file.stat().st_size for file in shares) > 1000, process
    context = trial.run()
    assert context.first_step == saved + 1
    whole.check(trial, load_file(context.output_dir("checkpoint") / ADAPTER_FILE))


@pytest.mark.slow
def test_two_processes_go_on_from_one_stop_at_the_same_step_and_two_finish(whole: Whole, tmp_path: Path) -> None:
    trial = new_trial(tmp_path)
    with pytest.raises(PreemptedError):
        trial.run(StopAfter(7))
    stop = StopSignal()

    def stop_at_twelve(group: LocalGroup, step: int) -> None:
        if step == 12:
            stop.request("enough")

    ending = run_on_two(trial, stop, stop_at_twelve)
    assert (ending.cause, ending.message) == ("stopped", "enough")
    assert ending.result is not None
    assert ending.result.outcome == "preempted"
    saved = committed_points(trial.store, trial.paths)[0]
    assert saved.attempt == "000002-trial"
    assert f"stopped after step {saved.step} of 40" in ending.result.message
    ending = run_on_two(trial, StopSignal(), lambda group, step: None)
    assert ending.cause is None, ending.message
    assert ending.result is not None
    assert (ending.result.first_step, ending.result.last_step) == (saved.step + 1, 40)
    assert {file.path for file in ending.result.outputs["checkpoint"]} == {"artifact.json", ADAPTER_FILE}
    scratch = tmp_path / "scratch" / trial.paths.key / "000003-trial"
    assert os.listdir(scratch) == ["process0", "process1"]  # noqa: PTH208
    whole.check(trial, adapter(scratch / "process0"))


RunFile = Callable[..., tuple[int, RunRecord]]


@pytest.fixture
def smoke_file(tmp_path: Path) -> Path:
    """A copy of the smoke pipeline, with a store of its own."""
    shutil.copytree(PIPELINES / "tiny", tmp_path / "tiny")
    (tmp_path / ".temper").mkdir()
    return Path(shutil.copy(PIPELINES / "smoke.yaml", tmp_path))


def samples(store: ConditionalStore, record: RunRecord, name: str) -> str:
    """What tells the file of an evaluation's answers from others."""
    stage = next(stage for stage in record.stages if stage.id == name)
    assert stage.key is not None
    manifest = read_manifest(store, StagePaths(stage.kind, stage.key))
    assert manifest is not None
    return {file.path: file.crc32c for file in manifest.outputs["report"]}["samples.jsonl"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_pipeline_goes_on_after_the_death_of_one_process_of_a_stage(
    run_file: RunFile, probe_python: str, smoke_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = {"sft": 13, "grpo": 4}
    monkeypatch.setenv("PROBE_KILL", ",".join(f"{name}:{step}:{tmp_path / name}" for name, step in kills.items()))
    settings = [f"stages.{name}.resources.num_processes=2" for name in ("eval_base", *kills)]
    settings += [f"defaults.resources.python={probe_python}", "defaults.retry.max=1", "defaults.retry.delay=[0]"]
    code, record = run_file(smoke_file, *(flag for text in settings for flag in ("--set", text)))
    assert (code, record.outcome) == (0, "succeeded")
    assert all((tmp_path / name).exists() for name in kills)
    outcomes = {stage.id: stage.outcome for stage in record.stages}
    assert outcomes == {
        "data": "done", "eval_base": "done", "sft": "resumed", "eval_sft": "done", "grpo": "resumed",
        "eval_grpo": "done", "export": "done", "gate": "passed",
    }  # fmt: skip
    store = open_store(str(tmp_path / ".temper" / "store"))
    alone = tmp_path / "alone"
    code = main(["run", str(smoke_file), "--set", f"store={alone}", "--until", "eval_base"])
    assert code == 0
    one = latest_run(open_store(str(alone)), "smoke")
    assert one is not None
    assert samples(store, record, "eval_base") == samples(open_store(str(alone)), one, "eval_base")
