"""Charts as SVG."""

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.report.charts import HEIGHT, WIDTH, Series, axis_ticks, interval_bar, line_chart, smoothed

finite = st.floats(-1e12, 1e12, allow_nan=False)


def points(svg: str) -> list[tuple[float, float]]:
    lines = [node for node in ET.fromstring(svg).iter() if node.get("class") in ("line", "raw")]
    return [
        (float(x), float(y))
        for line in lines
        for x, y in (pair.split(",") for pair in (line.get("points") or "").split())
    ]


@given(st.lists(finite, min_size=1, max_size=60))
def test_every_series_is_drawn_inside_its_frame(values: list[float]) -> None:
    svg = line_chart(Series("loss/nll", tuple(range(1, len(values) + 1)), tuple(values)))
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points(svg))


def test_a_rising_series_rises_on_the_page_and_steps_keep_their_distances() -> None:
    (x0, y0), (x1, y1), (x2, y2) = points(line_chart(Series("reward/mean", (10, 20, 40), (0.0, 0.5, 1.0))))
    assert y0 > y1 > y2
    assert (x2 - x1) == pytest.approx(2 * (x1 - x0), abs=0.2)


def test_a_name_cannot_break_out_of_the_picture() -> None:
    svg = line_chart(Series('a"><script>', (1, 2), (0.0, 1.0)))
    assert [node.tag for node in ET.fromstring(svg).iter() if node.tag == "script"] == []


@given(finite, st.floats(1e-6, 1e12))
def test_ticks_are_few_ascending_and_inside(low: float, width: float) -> None:
    if low + width > low + width / 4:
        ticks = axis_ticks(low, low + width)
        assert ticks == sorted(ticks)
        assert len(ticks) <= 6


def test_round_ticks() -> None:
    assert axis_ticks(0.03, 0.97) == pytest.approx([0.25, 0.5, 0.75])
    assert axis_ticks(-0.1, 2.1) == [0.0, 1.0, 2.0]


def test_small_numbers_on_the_axis_keep_their_digits() -> None:
    svg = line_chart(Series("optimizer/learning_rate", (1, 2), (2e-4, 1e-3)))
    labels = [node.text for node in ET.fromstring(svg).iter() if node.get("class") == "tick"]
    assert labels == ["2.5e-4", "5e-4", "7.5e-4", "0.001", "1", "2"]


def test_smoothing_keeps_constants_and_the_ends() -> None:
    assert smoothed([2.0] * 5, 2) == [2.0] * 5
    assert smoothed([0.0, 3.0, 0.0, 3.0], 1) == pytest.approx([0.0, 1.0, 2.0, 3.0])


def test_an_interval_is_clipped_to_the_rates_that_exist() -> None:
    svg = ET.fromstring(interval_bar(0.5, -0.2, 1.3))
    line = next(node for node in svg.iter() if node.get("class") == "range")
    assert (line.get("x1"), line.get("x2")) == ("4.0", "196.0")
