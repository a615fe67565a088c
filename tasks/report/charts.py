"""Line charts and intervals as inline SVG; colours come from the page's style."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 340, 170
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 10, 22
SMOOTH_FROM = 30
"""Series with at least this many points get a moving average over the faint raw line."""


@dataclass(frozen=True)
class Series:
    """Numbers over steps, both finite, steps ascending."""

    name: str
    steps: tuple[int, ...]
    values: tuple[float, ...]


def line_chart(series: Series) -> str:
    """An SVG of one series with at least one point."""
    low, high = _padded(min(series.values), max(series.values))
    ticks = axis_ticks(low, high)
    low, high = min(low, ticks[0]), max(high, ticks[-1])
    first, last = series.steps[0], series.steps[-1]

    def place(step: float, value: float) -> tuple[float, float]:
        across = (step - first) / (last - first) if last > first else 0.5
        up = (value - low) / (high - low)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    points = [place(step, value) for step, value in zip(series.steps, series.values, strict=True)]
    body = [_grid_line(place(first, tick)[1], _number(tick)) for tick in ticks]
    body += [_step_label(first, "start", LEFT), _step_label(last, "end", WIDTH - RIGHT)]
    if len(points) >= SMOOTH_FROM:
        smooth = smoothed(series.values, len(points) // 10)
        body.append(_path(points, "raw"))
        body.append(_path([place(s, v) for s, v in zip(series.steps, smooth, strict=True)], "line"))
    else:
        body.append(_path(points, "line"))
        body += [f'<circle class="point" cx="{x:.1f}" cy="{y:.1f}" r="2.2"/>' for x, y in points]
    label = escape(f"{series.name} over steps")
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(body)}</svg>'


def interval_bar(value: float, low: float, high: float) -> str:
    """An SVG of a rate between 0 and 1 with its interval."""
    x, left, right = (4 + 192 * min(1.0, max(0.0, number)) for number in (value, low, high))
    return (
        '<svg class="interval" viewBox="0 0 200 16" role="img" aria-label="rate from 0 to 1 with its interval">'
        '<line class="track" x1="4" y1="8" x2="196" y2="8"/>'
        f'<line class="range" x1="{left:.1f}" y1="8" x2="{right:.1f}" y2="8"/>'
        f'<circle class="value" cx="{x:.1f}" cy="8" r="4.5"/></svg>'
    )


def axis_ticks(low: float, high: float) -> list[float]:
    """Three to six round numbers that span most of the range; `low` must be below `high`."""
    rough = (high - low) / 4
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(magnitude * factor for factor in (1, 2, 2.5, 5, 10) if magnitude * factor >= rough)
    start = math.ceil(low / step)
    return [number * step for number in range(start, math.floor(high / step) + 1)]


def smoothed(values: Sequence[float], radius: int) -> list[float]:
    """Means over up to `radius` neighbours on both sides, fewer at the ends so that the window stays centred."""
    result: list[float] = []
    for index in range(len(values)):
        reach = min(radius, index, len(values) - 1 - index)
        window = values[index - reach : index + reach + 1]
        result.append(sum(window) / len(window))
    return result


def _padded(low: float, high: float) -> tuple[float, float]:
    margin = (high - low) * 0.06 or max(abs(high), 1e-6) * 0.5
    return low - margin, high + margin


def _grid_line(y: float, label: str) -> str:
    return (
        f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>'
        f'<text class="tick" x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{label}</text>'
    )


def _step_label(step: int, anchor: str, x: float) -> str:
    return f'<text class="tick" x="{x}" y="{HEIGHT - 6}" text-anchor="{anchor}">{step:,}</text>'


def _path(points: Sequence[tuple[float, float]], kind: str) -> str:
    return f'<polyline class="{kind}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'


def _number(value: float) -> str:
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e5:
        return f"{value:.4g}"
    return f"{value:.1e}".replace(".0e", "e").replace("e-0", "e-").replace("e+0", "e")
