import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.spec.references import OutputReference
from pipelines.spec.require import MAX_DEPTH, Combine, Compare, Delta, Metric, Not, Number, Truth, deltas
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


def test_deltas_are_found_with_their_reports() -> None:
    text = "delta(a, '${stages.x.outputs.report}') > 0 or not delta_low(b, \"${stages.y.outputs.report}\") <= 1e-3"
    assert list(deltas(parse(text))) == [
        Delta("delta", "a", OutputReference("x", "report"), 1),
        Delta("delta_low", "b", OutputReference("y", "report"), 51),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "column 1: expected a number or a metric, not the end"),
        ("accuracy", "column 1: expected a condition, such as `accuracy >= 0.5` here"),
        ("0.5", "column 1: expected a condition, such as `accuracy >= 0.5` here"),
        ("accuracy >=", "column 12: expected a number or a metric, not the end"),
        ("accuracy > true", "column 12: expected a number here"),
        ("(a < 1) < 2", "column 4: expected a number here"),
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
        ("a < 'x'", "column 5: expected a number or a metric, not `x`"),
        ("dleta(a, 'x') > 0", "column 1: unknown function `dleta` (did you mean `delta`?)"),
        ("__import__('os') > 0", "column 1: unknown function `__import__`"),
        ("delta(a) > 0", "column 8: expected `,`, not `)`"),
        ("delta('a', 'x') > 0", "column 7: expected a metric, not `a`"),
        ("delta(a, b) > 0", "column 10: expected a quoted report, not `b`"),
        ("delta(a, 'x') > 0", "column 10: expected '${stages.ID.outputs.NAME}', not `x`"),
        ("delta(a, '${params.x}') > 0", "column 10: expected '${stages.ID.outputs.NAME}', not `${params.x}`"),
        ("delta(a, '${stage.x.outputs.y}') > 0", "column 10: bad reference `${stage.x.outputs.y}`"),
        ("or", "column 1: expected a number or a metric, not `or`"),
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
