import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.spec.expressions import (
    Combine,
    Compare,
    Delta,
    Metric,
    Not,
    Number,
    ReportMetric,
    String,
    Truth,
    leaves,
    reports,
    with_reports,
)
from pipelines.spec.references import AliasReference, OutputReference
from pipelines.spec.require import MAX_DEPTH, parse_condition
from pipelines.spec.require import parse_requirement as parse
from pipelines.spec.require_tokens import RequireSyntaxError


def test_a_comparison_has_its_parts_and_columns() -> None:
    assert parse("accuracy >= -0.5") == Compare(">=", Metric("accuracy", 1), Number(-0.5, 13), 10)


def test_and_binds_tighter_than_or_and_not_tighter_than_and() -> None:
    expression = parse("true or false and not false")
    assert isinstance(expression, Combine)
    assert expression.operator == "or"
    assert expression.parts[0] == Truth(True, 1)
    last = expression.parts[1]
    assert isinstance(last, Combine)
    assert last.operator == "and"
    assert isinstance(last.parts[1], Not)


def test_parentheses_group() -> None:
    expression = parse("(true or false) and (a) < 1")
    assert isinstance(expression, Combine)
    assert expression.operator == "and"
    assert isinstance(expression.parts[0], Combine)


def test_a_condition_of_text_truth_and_a_metric_of_a_report_is_read() -> None:
    parsed = parse_condition("'fast' == \"slow\" or true != false or ${stages.eval.outputs.report.win_rate} > 0.5")
    assert isinstance(parsed, Combine)
    assert parsed.parts == (
        Compare("==", String("fast", 1), String("slow", 11), 8),
        Compare("!=", Truth(True, 21), Truth(False, 29), 26),
        Compare(">", ReportMetric(OutputReference("eval", "report"), "win_rate", 38), Number(0.5, 79), 77),
    )


def test_reports_get_other_names_wherever_they_stand() -> None:
    old, new = OutputReference("x", "report"), OutputReference("x[a=1]", "report")
    text = (
        "not (delta(a, '${stages.x.outputs.report}') > ${stages.x.outputs.report.b} and delta(a, '${aliases.p}') < 1)"
    )
    assert list(reports(with_reports(parse(text), {old: new}))) == [new, new, AliasReference("p")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("accuracy > 0", "column 1: `accuracy` of which report? Here a metric is `${stages.ID.outputs.report.accur"),
        ("delta(a, '${aliases.p}') > 0", "column 1: `delta` compares with a gate's own report: use a gate"),
    ],
)
def test_a_condition_has_no_report_of_its_own(text: str, message: str) -> None:
    with pytest.raises(RequireSyntaxError) as raised:
        parse_condition(text)
    assert str(raised.value).startswith(message)


def test_deltas_are_found_with_their_reports() -> None:
    text = "delta(a, '${stages.x.outputs.report}') > 0 or not delta_low(b, \"${stages.y.outputs.report}\") <= 1e-3"
    assert [leaf for leaf in leaves(parse(text)) if isinstance(leaf, Delta)] == [
        Delta("delta", "a", OutputReference("x", "report"), 1),
        Delta("delta_low", "b", OutputReference("y", "report"), 51),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "column 1: expected a value or a metric, not the end"),
        ("accuracy", "column 1: expected a condition, such as `accuracy >= 0.5` here"),
        ("0.5", "column 1: expected a condition, such as `accuracy >= 0.5` here"),
        ("accuracy >=", "column 12: expected a value or a metric, not the end"),
        ("accuracy > true", "column 12: expected a number here"),
        ("accuracy == 'x'", "column 13: expected a number here"),
        ("'x' == 1", "column 8: expected text here"),
        ("'x' < 'y'", "column 5: `<` compares numbers, not text"),
        ("true >= false", "column 6: `>=` compares numbers, not true or false"),
        ("'x'", "column 1: expected a condition, such as `accuracy >= 0.5` here"),
        ("${stages.x.outputs.y} > 1", "column 1: expected a metric of a report, `${stages.ID.outputs.report.METRIC}`"),
        ("${params} > 1", "column 1: bad reference `${params}`: expected `${params.NAME}`"),
        ("1 < ${stages.x", "column 5: unexpected `$`"),
        ("(a < 1) < 2", "column 4: expected a value here, not a condition"),
        ("0 < a < 1", "column 7: comparisons do not chain: join two with `and`"),
        ("a < 1 and b", "column 11: expected a condition, such as `accuracy >= 0.5` here"),
        ("not a", "column 5: expected a condition, such as `accuracy >= 0.5` here"),
        ("a < 1 b < 2", "column 7: expected the end, not `b`"),
        ("a < 1)", "column 6: expected the end, not `)`"),
        ("(a < 1", "column 7: expected `)`, not the end"),
        ("a = 1", "column 3: unexpected `=` (`==` compares)"),
        ("a < 1 & b < 2", "column 7: unexpected `&`"),
        ("a < 0.5x", "column 5: unexpected `0`"),
        ("a < 'x", "column 5: this quote is not closed"),
        ("a < 'x'", "column 5: expected a number here"),
        ("dleta(a, 'x') > 0", "column 1: unknown function `dleta` (did you mean `delta`?)"),
        ("__import__('os') > 0", "column 1: unknown function `__import__`"),
        ("delta(a) > 0", "column 8: expected `,`, not `)`"),
        ("delta('a', 'x') > 0", "column 7: expected a metric, not `a`"),
        ("delta(a, b) > 0", "column 10: expected a quoted report, not `b`"),
        ("delta(a, 'x') > 0", "column 10: expected '${stages.ID.outputs.NAME}' or '${aliases.NAME}', not `x`"),
        ("delta(a, '${params.x}') > 0", "column 10: expected '${stages.ID.outputs.NAME}' or '${aliases.NAME}'"),
        ("delta(a, '${stage.x.outputs.y}') > 0", "column 10: bad reference `${stage.x.outputs.y}`"),
        ("or", "column 1: expected a value or a metric, not `or`"),
    ],
)
def test_a_bad_condition_is_refused_with_its_column(text: str, message: str) -> None:
    with pytest.raises(RequireSyntaxError) as raised:
        parse(text)
    assert str(raised.value).startswith(message)


def test_nesting_is_bounded() -> None:
    assert parse("(" * MAX_DEPTH + "true" + ")" * MAX_DEPTH) == Truth(True, MAX_DEPTH + 1)
    for opening, closing in (("(", ")"), ("not ", "")):
        with pytest.raises(RequireSyntaxError, match="nested more than"):
            parse(opening * (MAX_DEPTH + 1) + "true" + closing * (MAX_DEPTH + 1))


words = st.sampled_from(["(", ")", "not", "and", "or", "a", "0.5", "<", "==", ",", "'x'", "delta", "true", " ", "-1"])


@given(st.lists(words, max_size=12))
def test_any_row_of_words_is_a_condition_or_a_syntax_error(row: list[str]) -> None:
    text = " ".join(row)
    try:
        parse(text)
    except RequireSyntaxError as error:
        column = error.column
    else:
        return
    assert 1 <= column <= len(text) + 1
