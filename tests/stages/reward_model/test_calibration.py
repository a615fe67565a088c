"""What is measured on pairs that a reward model did not learn."""

import json
from pathlib import Path

import numpy as np
import pytest

from stages.contract import ARTIFACT_FILE, ReportArtifact
from stages.reward_model.calibration import SAMPLES_FILE, PairRewards, add_to_report, measure

CHOSEN = np.array([1.0, 0.5, -1.0, 2.0, 0.0], np.float32)
REJECTED = np.array([0.0, 1.5, -1.0, -1.0, -0.5], np.float32)
REWARDS = PairRewards(["a", "b", "c", "d", "e"], CHOSEN, REJECTED)


def test_a_lead_is_the_probability_of_being_better() -> None:
    found = measure(REWARDS, 2)
    probabilities = 1 / (1 + np.exp(REJECTED.astype(float) - CHOSEN))  # 0.731, 0.269, a half, 0.953, 0.622
    assert found["accuracy"] == pytest.approx((3 + 0.5) / 5)
    assert found["brier_score"] == pytest.approx(np.mean((1 - probabilities) ** 2), rel=1e-5)
    # All but the fourth are less certain than 3/4; one of these four is wrong and one undecided.
    unsure = np.array([probabilities[0], 1 - probabilities[1], 0.5, probabilities[4]]).mean()
    assert found["bin_01_confidence"] == pytest.approx(unsure, rel=1e-5)
    assert found["bin_01_accuracy"] == pytest.approx(2.5 / 4)
    assert (found["bin_01_pairs"], found["bin_02_pairs"], found["bin_02_accuracy"]) == (4, 1, 1)
    error = (4 * abs(2.5 / 4 - unsure) + abs(1 - probabilities[3])) / 5
    assert found["calibration_error"] == pytest.approx(error, rel=1e-5)


def test_bins_without_pairs_are_left_out() -> None:
    found = measure(REWARDS, 10)
    pairs = {name: value for name, value in found.items() if name.endswith("_pairs")}
    assert pairs == {"bin_01_pairs": 1, "bin_03_pairs": 1, "bin_05_pairs": 2, "bin_10_pairs": 1}


def test_it_joins_the_report_of_the_training_with_the_numbers_of_each_pair(tmp_path: Path) -> None:
    (tmp_path / ARTIFACT_FILE).write_text(ReportArtifact(metrics={"step": 3.0}).model_dump_json())
    add_to_report(tmp_path, REWARDS, 2)
    report = ReportArtifact.model_validate_json((tmp_path / ARTIFACT_FILE).read_text())
    assert report.metrics == {"step": 3.0, **measure(REWARDS, 2)}
    assert (report.samples_file, report.num_samples) == (SAMPLES_FILE, 5)
    low, high = report.intervals["accuracy"]
    assert 0 < low < report.metrics["accuracy"] < high <= 1
    samples = [json.loads(line) for line in (tmp_path / SAMPLES_FILE).read_text().splitlines()]
    assert [sample["accuracy"] for sample in samples] == [1, 0, 0.5, 1, 1]
    assert samples[1] == {"id": "b", "accuracy": 0, "chosen_reward": 0.5, "rejected_reward": 1.5}
