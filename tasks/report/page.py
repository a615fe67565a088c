"""The page: content in, one self-contained HTML text out."""

import json
from datetime import datetime
from functools import cache
from importlib.resources import files

from jinja2 import Environment, Template
from markupsafe import Markup

from stages.statistics import Interval
from stages.store.moments import shown_time
from stages.store.runs import StageOutcome
from tasks.display import describe_seconds
from tasks.report.charts import Series, interval_bar, line_chart
from tasks.report.content import Content

OUTCOME_CLASSES: dict[StageOutcome, str] = {
    "done": "good",
    "resumed": "good",
    "passed": "good",
    "reused": "plain",
    "failed": "bad",
    "stopped": "warn",
}
MISSING = "\N{EN DASH}"
VERDICT_CLASSES = {
    "succeeded": "good",
    "failed": "bad",
    "stopped": "warn",
    "waiting_approval": "warn",
    "running": "plain",
}


def render_page(content: Content) -> str:
    """The report as HTML. All that comes from outside, such as responses, is escaped."""
    run = content.run
    started, finished = (datetime.fromisoformat(text) if text else None for text in (run.started, run.finished))
    return _template().render(
        run=run,
        style=Markup(_resource("style.css")),  # noqa: S704
        duration=(finished - started).total_seconds() if started and finished else 0.0,
        verdict_class=VERDICT_CLASSES[run.outcome],
        tiles=[evaluation for evaluation in content.evaluations if evaluation.accuracy is not None],
        evaluations=content.evaluations,
        gates=[stage for stage in run.stages if stage.kind == "gate"],
        curves=content.curves,
        comparisons=content.comparisons,
    )


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(
        moment=shown_time,
        seconds=describe_seconds,
        percent=lambda rate: f"{100 * rate:.1f}%" if isinstance(rate, int | float) else MISSING,
        points=lambda difference: f"{100 * difference:+.1f}",
        short=lambda number: f"{number:.4g}" if isinstance(number, int | float) else MISSING,
        sign=sign_class,
        outcome_class=lambda outcome: OUTCOME_CLASSES.get(outcome, "plain"),
        source=lambda uri: uri.partition("#")[0].removeprefix("package://"),
        pretty=lambda text: json.dumps(json.loads(text), indent=2),
    )
    environment.globals.update(line_chart=_chart, interval_bar=_bar)
    return environment.from_string(_resource("page.html.jinja"))


def sign_class(interval: Interval) -> str:
    """Whether a difference is above 0, below it, or not told from it, by its whole interval."""
    return "good" if interval.low > 0 else "bad" if interval.high < 0 else "plain"


def _chart(series: Series) -> Markup:
    return Markup(line_chart(series))  # noqa: S704


def _bar(value: float, low: float, high: float) -> Markup:
    return Markup(interval_bar(value, low, high))  # noqa: S704


def _resource(name: str) -> str:
    return files("tasks.report").joinpath(name).read_text(encoding="utf-8")
