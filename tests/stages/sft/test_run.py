"""Supervised fine-tuning of the tiny model, whole."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from stage_trial import TINY, StageTrial, StopAfter, Trained, coin_rows, external, stored_rows

from stages.contract import ARTIFACT_FILE, RESULT_FILE, ModelArtifact, ReportArtifact, StageResult
from stages.engine.models.lora import ADAPTER_FILE
from stages.errors import PreemptedError, UserError
from stages.store.progress import committed_points

NUM_STEPS = 30


def again(trained: Trained) -> StageTrial:
    """The same settings and inputs in the same store, from the start."""
    return StageTrial(trained.folder, "sft", trained.trial.config, trained.trial.inputs)


def test_the_loss_falls_towards_what_cannot_be_known(trained: Trained) -> None:
    losses = [numbers["loss/nll"] for _, numbers in trained.trial.learned()]
    assert len(losses) == NUM_STEPS
    assert losses[0] > 4.0
    # Each response is one toss of a coin and one certain end token.
    assert np.log(2) / 2 < np.mean(losses[-5:]) < 1.0


def test_every_step_says_what_it_did(trained: Trained) -> None:
    rows = trained.trial.learned()
    assert [step for step, _ in rows] == list(range(1, NUM_STEPS + 1))
    rates = [numbers["optimizer/learning_rate"] for _, numbers in rows]
    np.testing.assert_allclose(rates, [0.0025, 0.005, 0.0075] + [0.01] * 27, rtol=1e-5)
    assert all(numbers["optimizer/grad_norm"] > 0 for _, numbers in rows)
    assert {numbers["data/target_tokens"] for _, numbers in rows} == {16}
    shares = [row.numbers["throughput/share_of_peak"] for row in trained.trial.metrics()]
    assert all(share > 0 for share in shares)


def test_the_outputs_are_an_adapter_over_its_base_and_the_counters(trained: Trained) -> None:
    artifact = ModelArtifact.model_validate_json((trained.outputs["checkpoint"] / ARTIFACT_FILE).read_text())
    assert artifact.base == external(TINY).source
    assert artifact.adapter is not None
    assert (artifact.adapter.rank, artifact.adapter.alpha) == (8, 16.0)
    report = ReportArtifact.model_validate_json((trained.outputs["report"] / ARTIFACT_FILE).read_text())
    counters = {"step": 30, "updates": 30, "rows": 240, "tokens": 480, "skipped_updates": 0}
    assert report.metrics == {**counters, "dropped_rows": 0, "truncated_rows": 0}


def test_a_run_that_was_stopped_twice_leaves_the_same_files_and_metrics(trained: Trained) -> None:
    trial = again(trained)
    for steps, done in ((7, 7), (11, 18)):
        with pytest.raises(PreemptedError, match=f"stopped after step {done} of 30"):
            trial.run(StopAfter(steps))
    context = trial.run()
    assert context.first_step == 19
    for output, folder in trained.outputs.items():
        for path in folder.iterdir():
            assert (context.output_dir(output) / path.name).read_bytes() == path.read_bytes(), path.name
    assert trial.learned() == trained.trial.learned()


def start_process(trial: StageTrial, folder: Path) -> tuple["subprocess.Popen[bytes]", Path]:
    request = trial.request()
    (folder / "request.json").write_text(request.model_dump_json())
    command = [sys.executable, "-m", "stages", str(folder / "request.json")]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, env={**os.environ, "PYTHONHASHSEED": "7"}), Path(
        request.scratch
    )


def test_a_process_told_to_stop_saves_and_another_one_finishes_with_the_same_bytes(
    trained: Trained, tmp_path: Path
) -> None:
    trial = again(trained)
    process, scratch = start_process(trial, tmp_path)
    deadline = time.monotonic() + 120
    while not committed_points(trial.store, trial.paths):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    if process.wait(60) != 0:
        assert process.returncode == 75
        result = StageResult.model_validate_json((scratch / RESULT_FILE).read_text())
        assert result.outcome == "preempted"
        stopped_at = committed_points(trial.store, trial.paths)[0].step
        assert f"stopped after step {stopped_at} of 30" in result.message
        process, scratch = start_process(trial, tmp_path)
        assert process.wait(120) == 0
        assert StageResult.model_validate_json((scratch / RESULT_FILE).read_text()).first_step == stopped_at + 1
    written = scratch / "out" / "checkpoint" / ADAPTER_FILE
    assert written.read_bytes() == (trained.outputs["checkpoint"] / ADAPTER_FILE).read_bytes()


def test_a_longer_example_than_allowed_is_refused_with_its_name_before_training(
    trained: Trained, tmp_path: Path
) -> None:
    config = trained.trial.config.model_copy(update={"max_tokens": 20})
    dataset = stored_rows(tmp_path, coin_rows(3, lambda n: "1"))
    trial = StageTrial(tmp_path, "sft", config, {"model": external(TINY), "dataset": dataset})
    with pytest.raises(UserError, match=r"row row-000 has \d+ tokens, more than max_tokens = 20; so have 3 of 3 rows"):
        trial.run()
    assert trial.metrics() == []


def test_an_example_that_leaves_the_models_context_is_refused_before_weights_are_read(
    trained: Trained, tmp_path: Path
) -> None:
    base = Path(shutil.copytree(TINY, tmp_path / "base", copy_function=shutil.copy))
    weights = base / "model.safetensors"
    weights.write_bytes(weights.read_bytes().replace(b"model.norm.weight", b"model.norm.weighs"))
    dataset = stored_rows(tmp_path, coin_rows(3, lambda n: "1" * 500))
    trial = StageTrial(tmp_path, "sft", trained.trial.config, {"model": external(base), "dataset": dataset})
    with pytest.raises(UserError, match=r"take \d+ tokens, more than the 512 of the model's context"):
        trial.run()
