"""How often a reward model prefers the better response, and how well it knows: measured on pairs it did not learn."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32

from stages.contract import ARTIFACT_FILE, ReportArtifact
from stages.engine.objectives.calibration import Reliability, brier_score, expected_calibration_error, reliability
from stages.engine.objectives.preference import preferred
from stages.statistics import mean_interval

SAMPLES_FILE = "samples.jsonl"


class PairRewards(NamedTuple):
    """Rewards of N pairs of responses.

    Attributes:
        ids: of the rows.
        chosen: rewards of the better responses.
        rejected: rewards of the worse ones.
    """

    ids: Sequence[str]
    chosen: Float32[np.ndarray, " N"]
    rejected: Float32[np.ndarray, " N"]


def measure(rewards: PairRewards, num_bins: int) -> dict[str, float]:
    """Accuracy, calibration and the bins of a reliability diagram; empty bins are left out.

    The probability that a response is better is the sigmoid of what its reward is ahead.
    """
    found, bins = _measure(rewards.chosen, rewards.rejected, num_bins)
    for number, (count, confidence, accuracy) in enumerate(zip(*map(np.asarray, bins), strict=True), start=1):
        if count:
            name = f"bin_{number:02d}"
            found |= {f"{name}_pairs": count, f"{name}_confidence": confidence, f"{name}_accuracy": accuracy}
    return {name: float(value) for name, value in found.items()}


@partial(jax.jit, static_argnames="num_bins")
def _measure(
    chosen: Float[Array, " N"], rejected: Float[Array, " N"], num_bins: int
) -> tuple[dict[str, Float[Array, ""]], Reliability]:
    probabilities, outcomes = jax.nn.sigmoid(chosen - rejected), jnp.ones_like(chosen)
    every = jnp.ones(chosen.shape, bool)
    bins = reliability(probabilities, outcomes, every, num_bins)
    means = {
        "accuracy": preferred(chosen, rejected).mean(),
        "brier_score": brier_score(probabilities, outcomes, every),
        "calibration_error": expected_calibration_error(bins),
        "mean_margin": (chosen - rejected).mean(),
        "mean_reward": (chosen + rejected).mean() / 2,
    }
    return means, bins


def add_to_report(folder: Path, rewards: PairRewards, num_bins: int) -> None:
    """Adds what is measured to the report of a training, and each pair's numbers beside it."""
    path, samples = folder / ARTIFACT_FILE, _samples(rewards)
    report = ReportArtifact.model_validate_json(path.read_bytes())
    with (folder / SAMPLES_FILE).open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps(sample, sort_keys=True) + "\n" for sample in samples)
    accuracy = mean_interval([float(sample["accuracy"]) for sample in samples])
    added = {
        "metrics": report.metrics | measure(rewards, num_bins),
        "intervals": {"accuracy": (accuracy.low, accuracy.high)},
        "samples_file": SAMPLES_FILE,
        "num_samples": len(samples),
    }
    path.write_text(report.model_copy(update=added).model_dump_json())


def _samples(rewards: PairRewards) -> list[dict[str, str | float]]:
    accuracies = np.asarray(preferred(jnp.asarray(rewards.chosen), jnp.asarray(rewards.rejected)))
    return [
        {"id": row, "accuracy": float(accuracy), "chosen_reward": float(chosen), "rejected_reward": float(rejected)}
        for row, accuracy, chosen, rejected in zip(
            rewards.ids, accuracies, rewards.chosen, rewards.rejected, strict=True
        )
    ]
