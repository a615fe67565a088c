"""The curves of a stage as one picture: an SVG that stands alone, as a `data:` address."""

import base64
from collections.abc import Sequence
from html import escape

from tasks.report.charts import HEIGHT, WIDTH, Series, line_chart

COLUMNS = 2
MAX_CHARTS = 6
TITLE = 24
STYLE = """
svg { background: #ffffff; font: 11px system-ui, sans-serif; }
.title { font-size: 12px; font-weight: 600; fill: #1a2230; }
.tick { fill: #5b6678; font-size: 10px; }
.grid { stroke: #e2e6ec; }
.line { fill: none; stroke: #2459c9; stroke-width: 2; }
.raw { fill: none; stroke: #2459c9; stroke-opacity: 0.25; }
.point { fill: #2459c9; }
"""


def picture(series: Sequence[Series]) -> str:
    """The first few series, two in a row, as an address that an `img` takes."""
    shown = series[:MAX_CHARTS]
    rows = -(-len(shown) // COLUMNS)
    charts = "".join(_place(one, *divmod(index, COLUMNS)) for index, one in enumerate(shown))
    width, height = WIDTH * min(COLUMNS, len(shown)), (HEIGHT + TITLE) * rows
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        f"<style>{STYLE}</style>{charts}</svg>"
    )
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def _place(series: Series, row: int, column: int) -> str:
    x, y = column * WIDTH, row * (HEIGHT + TITLE)
    chart = line_chart(series).replace("<svg ", f'<svg x="{x}" y="{y + TITLE}" width="{WIDTH}" height="{HEIGHT}" ', 1)
    return f'<text class="title" x="{x + 12}" y="{y + 16}">{escape(series.name)}</text>{chart}'
