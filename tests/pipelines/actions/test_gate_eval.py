from collections.abc import Callable, Mapping

import pytest

from pipelines.actions.gate_eval import evaluate_condition, evaluate_gate, metric_difference
from pipelines.actions.reports import Report
from pipelines.spec.expressions import ReportReference
from pipelines.spec.nodes import Condition, GateNode
from pipelines.spec.references import OutputReference
from pipelines.spec.require import parse_condition
from stages.errors import UserError

MakeGate = Callable[..., GateNode]


def report(right: int, total: int = 100, truncated: float = 0.1) -> Report:
    rows = {f"p{n}": {"id": f"p{n}", "accuracy": int(n < right), "response": "7"} for n in range(total)}
    return Report({"accuracy": right / total, "truncated_rate": truncated}, rows)


REPORTS: Mapping[ReportReference, Report] = {
    OutputReference("tuned", "report"): report(60),
    OutputReference("base", "report"): report(40),
}
BASE = "'${stages.base.outputs.report}'"


@pytest.mark.parametrize(
    ("requirement", "passes"),
    [
        ("accuracy >= 0.6", True),
        ("accuracy > 0.6", False),
        ("accuracy == 0.6", True),
        ("accuracy != 0.6", False),
        ("accuracy < 0.7 and truncated_rate <= 0.1", True),
        ("accuracy < 0.7 and truncated_rate < 0.1", False),
        ("accuracy < 0.1 or truncated_rate < 0.2", True),
        ("not accuracy < 0.1", True),
        ("not (accuracy < 0.1 or true)", False),
        ("true or accuracy < 0 and false", True),
        (f"delta(accuracy, {BASE}) >= 0.2", True),
        (f"delta(accuracy, {BASE}) > 0.21", False),
        (f"delta_low(accuracy, {BASE}) > 0.1", True),
        (f"delta_low(accuracy, {BASE}) > 0.15", False),
        (f"0.1 < delta_low(accuracy, {BASE})", True),
        ("0 < 1", True),
    ],
)
def test_a_requirement_is_decided_on_the_numbers_of_the_reports(requirement: str, passes: bool, gate: MakeGate) -> None:
    assert evaluate_gate(gate(requirement), REPORTS).passed == passes


def test_a_gate_passes_only_when_all_requirements_do(gate: MakeGate) -> None:
    outcome = evaluate_gate(gate("accuracy > 0.5", "accuracy > 0.9"), REPORTS)
    assert not outcome.passed
    assert [requirement.passed for requirement in outcome.requirements] == [True, False]


def test_each_line_shows_the_numbers_that_were_decided_on(gate: MakeGate) -> None:
    outcome = evaluate_gate(
        gate("accuracy > 0.5 and accuracy < 0.9 or truncated_rate > 1", f"delta_low(accuracy, {BASE}) > 0"), REPORTS
    )
    assert outcome.lines == (
        "passed: accuracy > 0.5 and accuracy < 0.9 or truncated_rate > 1 (accuracy = 0.6, truncated_rate = 0.1)",
        (
            f"passed: delta_low(accuracy, {BASE}) > 0 (accuracy differs from base by +0.2000, "
            "95% interval +0.1200 to +0.2800)"
        ),
    )


def test_an_unknown_metric_is_refused_by_name(gate: MakeGate) -> None:
    with pytest.raises(UserError) as raised:
        evaluate_gate(gate("acuracy > 0.5"), REPORTS)
    assert str(raised.value) == (
        "stages.gate.require: `acuracy > 0.5`: the report has no metric `acuracy` (did you mean `accuracy`?)"
    )
    with pytest.raises(UserError, match="no metric `bleu`; it has accuracy, truncated_rate"):
        evaluate_gate(gate("bleu > 0.5"), REPORTS)


def test_a_difference_needs_samples_of_its_metric(gate: MakeGate) -> None:
    for metric in ("truncated_rate", "response"):
        with pytest.raises(UserError, match=f"needs a number `{metric}` for each sample"):
            evaluate_gate(gate(f"delta({metric}, {BASE}) > 0"), REPORTS)


def test_a_difference_of_reports_about_other_samples_is_refused(gate: MakeGate) -> None:
    reports = {**REPORTS, OutputReference("base", "report"): report(40, total=90)}
    with pytest.raises(UserError, match="10 only in the first"):
        evaluate_gate(gate(f"delta(accuracy, {BASE}) > 0"), reports)


def test_the_difference_of_a_report_to_itself_is_nothing() -> None:
    interval = metric_difference(report(60), report(60), "accuracy")
    assert (interval.mean, interval.low, interval.high) == (0.0, 0.0, 0.0)


# --- if ------------------------------------------------------------------------------------------

TUNED = "${stages.tuned.outputs.report.accuracy}"


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("7 == 7.0", True),
        ("'long' == 'short'", False),
        ("'long' != 'short' and not false", True),
        ("true == false", False),
        (f"{TUNED} >= 0.6", True),
        (f"{TUNED} > 0.6 or 1 > 2", False),
    ],
)
def test_a_condition_is_decided_on_values_and_on_metrics_of_reports(text: str, holds: bool) -> None:
    condition = Condition(text, parse_condition(text), ())
    assert evaluate_condition(condition, REPORTS).passed == holds


def test_a_condition_shows_the_numbers_that_it_was_decided_on() -> None:
    text = f"{TUNED} >= 0.9"
    outcome = evaluate_condition(Condition(text, parse_condition(text), ()), REPORTS)
    assert str(outcome) == f"failed: {text} (accuracy of tuned = 0.6)"


def test_a_condition_on_an_unknown_metric_is_refused() -> None:
    text = "${stages.tuned.outputs.report.acuracy} > 0.5"
    with pytest.raises(UserError, match=r"if `\$.*`: the report has no metric `acuracy` \(did you mean"):
        evaluate_condition(Condition(text, parse_condition(text), ()), REPORTS)
