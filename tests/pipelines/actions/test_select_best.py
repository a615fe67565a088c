import math

import pytest

from pipelines.actions.reports import Report
from pipelines.actions.select_best import decide_select
from pipelines.spec.diagnostics import Place
from pipelines.spec.nodes import ActionNode, SelectBest, StageOutput
from stages.contract import ModelArtifact, ReportArtifact
from stages.errors import UserError


def choice(mode: str = "max", metric: str = "accuracy", count: int = 3) -> ActionNode:
    inputs = {
        "candidates": tuple(StageOutput(f"sft[{n}]", "checkpoint", ModelArtifact) for n in range(count)),
        "reports": tuple(StageOutput(f"eval[{n}]", "report", ReportArtifact) for n in range(count)),
    }
    action = SelectBest(metric, "max" if mode == "max" else "min")
    return ActionNode("best", action, inputs, (), Place("f", 1, 1))


def reports(*values: float) -> list[Report]:
    return [Report({"accuracy": value}, {}) for value in values]


@pytest.mark.parametrize(
    ("mode", "values", "chosen"),
    [
        ("max", (0.1, 0.3, 0.2), 1),
        ("min", (0.2, 0.3, 0.1), 2),
        ("max", (0.3, 0.1, 0.3), 0),
        ("min", (0.3, 0.1, 0.1), 1),
        ("max", (-math.inf, 0.0, math.inf), 2),
    ],
)
def test_the_best_value_is_chosen_and_the_first_of_equals(mode: str, values: tuple[float, ...], chosen: int) -> None:
    assert decide_select(choice(mode), reports(*values)) == chosen


def test_a_report_that_lacks_the_metric_is_named() -> None:
    with pytest.raises(UserError) as raised:
        decide_select(choice(metric="acuracy"), reports(0.1, 0.2, 0.3))
    message = "stages.best: stages.eval[0].outputs.report has no metric `acuracy` (did you mean `accuracy`?)"
    assert str(raised.value) == message
    with pytest.raises(UserError, match=r"stages.eval\[1\].outputs.report has no metric `accuracy`; it has loss"):
        decide_select(choice(), [reports(0.1)[0], Report({"loss": 1.0}, {}), reports(0.2)[0]])


def test_a_value_that_is_no_number_is_refused_and_not_ranked() -> None:
    with pytest.raises(UserError, match=r"`accuracy` of stages.eval\[2\].outputs.report is not a number"):
        decide_select(choice(), reports(0.1, 0.2, math.nan))
