import math
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stages.errors import UserError
from stages.statistics import Interval, mean_interval, paired_difference


def test_the_mean_is_exact_and_lies_within_its_interval() -> None:
    interval = mean_interval([0, 1, 1, 1])
    assert (interval.mean, interval.count) == (0.75, 4)
    assert interval.low <= 0.75 <= interval.high


def test_equal_samples_have_an_interval_without_width() -> None:
    assert mean_interval([0.3] * 7) == Interval(0.3, 0.3, 0.3, 7)


@pytest.mark.parametrize("right", [60, 100, 190])
def test_the_interval_of_a_rate_is_that_of_its_binomial_distribution(right: int) -> None:
    """The bootstrap distribution of a rate is binomial with the observed rate: its quantiles are known exactly."""
    samples, rate = 200, right / 200
    below, quantiles = 0.0, []
    for successes in range(samples + 1):
        below += math.comb(samples, successes) * rate**successes * (1 - rate) ** (samples - successes)
        quantiles.append(below)
    low = next(k for k, p in enumerate(quantiles) if p >= 0.025) / samples
    high = next(k for k, p in enumerate(quantiles) if p >= 0.975) / samples
    interval = mean_interval([1.0] * right + [0.0] * (samples - right))
    assert interval.low == pytest.approx(low, abs=1.01 / samples)
    assert interval.high == pytest.approx(high, abs=1.01 / samples)


def test_drawing_counts_and_drawing_samples_give_the_same_interval() -> None:
    generator = random.Random(5)
    values = [generator.choice([-1.0, 0.0, 0.0, 1.0]) for _ in range(300)]
    # A fourth value that differs from zero by nothing that matters is drawn sample by sample.
    drawn = mean_interval([*values, 1e-12])
    counted = mean_interval([*values, 0.0])
    assert counted.low == pytest.approx(drawn.low, abs=0.01)
    assert counted.high == pytest.approx(drawn.high, abs=0.01)


def test_the_interval_covers_the_truth_about_nineteen_times_in_twenty() -> None:
    generator = random.Random(11)
    covered = 0
    for _ in range(200):
        interval = mean_interval([float(generator.random() < 0.3) for _ in range(150)])
        covered += interval.low <= 0.3 <= interval.high
    assert 180 <= covered <= 199


def test_a_paired_difference_joins_on_the_id_and_is_first_minus_second() -> None:
    first = {"b": 1.0, "a": 1.0, "c": 1.0}
    second = {"a": 0.0, "c": 1.0, "b": 0.0}
    assert paired_difference(first, second).mean == pytest.approx(2 / 3)
    assert paired_difference(second, first).mean == pytest.approx(-2 / 3)


def test_pairing_narrows_the_interval_of_two_reports_that_agree() -> None:
    generator = random.Random(2)
    base = {str(n): float(generator.random() < 0.5) for n in range(200)}
    better = base | {str(n): 1.0 for n in range(20)}
    assert paired_difference(better, base).low > 0
    assert mean_interval(list(better.values())).low < mean_interval(list(base.values())).high


def test_reports_about_other_samples_are_refused_by_name() -> None:
    with pytest.raises(UserError, match=r"1 only in the first \(b\), 4 only in the second \(c, d, e, …\)"):
        paired_difference({"a": 1.0, "b": 1.0}, {"a": 1.0, "c": 1.0, "d": 1.0, "e": 1.0, "f": 1.0})


def test_no_samples_are_refused() -> None:
    with pytest.raises(UserError, match="at least one sample"):
        paired_difference({}, {})


def test_the_order_of_the_samples_does_not_matter() -> None:
    values = [0.1, 0.9, 0.5, 0.2, 0.7]
    assert mean_interval(values) == mean_interval(values[::-1])


@pytest.mark.parametrize("seed", ["0", "1", "random"])
def test_every_process_gets_the_same_interval(seed: str) -> None:
    program = (
        "from stages.statistics import mean_interval as m; "
        "print([m(v) for v in ([0., 1.] * 40 + [1.], [-1., 0., 1.] * 30, [n / 7 for n in range(50)])])"
    )
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONHASHSEED": seed}
    command = [sys.executable, "-c", program]
    printed = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=True).stdout
    values = ([0.0, 1.0] * 40 + [1.0], [-1.0, 0.0, 1.0] * 30, [n / 7 for n in range(50)])
    assert printed.strip() == str([mean_interval(value) for value in values])


def test_a_thousand_samples_take_well_under_two_seconds() -> None:
    generator = random.Random(1)
    started = time.process_time()
    mean_interval([generator.random() for _ in range(1000)])
    assert time.process_time() - started < 1.5
    started = time.process_time()
    mean_interval([float(generator.random() < 0.5) for _ in range(1000)])
    assert time.process_time() - started < 0.2
