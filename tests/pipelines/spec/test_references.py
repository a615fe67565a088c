import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.spec.references import (
    AliasReference,
    EachMatrixReference,
    EachReference,
    EnvReference,
    MatrixReference,
    MetricReference,
    OutputReference,
    ParamReference,
    Reference,
    ReferenceSyntaxError,
    RunReference,
    escaped,
    parse_template,
)


def test_text_is_split_into_pieces_and_references() -> None:
    assert parse_template("a ${params.x}-${ stages.s-1.outputs.o }") == (
        "a ",
        ParamReference("x"),
        "-",
        OutputReference("s-1", "o"),
    )


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("stages.dpo[*].outputs.checkpoint", OutputReference("dpo[*]", "checkpoint")),
        ("stages.dpo[beta=0.1,lr=1e-06].outputs.checkpoint", OutputReference("dpo[beta=0.1,lr=1e-06]", "checkpoint")),
        ("stages.eval.outputs.report.win_rate", MetricReference(OutputReference("eval", "report"), "win_rate")),
        ("matrix.beta", MatrixReference("beta")),
        ("each.outputs.report", EachReference("report")),
        ("each.outputs.report.win_rate", EachReference("report", "win_rate")),
        ("each.matrix.beta", EachMatrixReference("beta")),
        ("aliases.prod-1.2", AliasReference("prod-1.2")),
        ("env.HOME", EnvReference("HOME")),
        ("run.id", RunReference("id")),
    ],
)
def test_a_reference_is_read_and_written_the_same(text: str, reference: Reference) -> None:
    assert parse_template(f"${{{text}}}") == (reference,)
    assert str(reference) == text


def test_a_doubled_dollar_sign_escapes() -> None:
    assert parse_template("cost $5, $${params.x}") == ("cost $5, ${params.x}",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${params.x", "not closed"),
        ("${}", "it starts with `params`, `stages`, `matrix`, `each`, `aliases`, `env` or `run`"),
        ("${params.a.b}", "expected `${params.NAME}`"),
        ("${param.a}", "(did you mean `params`?)"),
        ("${stages.a.output.b}", "(did you mean `outputs`?)"),
        ("${run.name}", "expected `${run.id}` or `${run.date}`"),
        ("${each.x}", "expected `${each.outputs.NAME}` or `${each.matrix.NAME}`"),
        ("${params.a-${params.b}}", "bad reference"),
    ],
)
def test_a_bad_reference_is_refused(text: str, message: str) -> None:
    with pytest.raises(ReferenceSyntaxError) as raised:
        parse_template(text)
    assert message in str(raised.value)


@given(st.text().filter(lambda text: "${" not in text))
def test_text_without_references_is_itself(text: str) -> None:
    assert "".join(str(piece) for piece in parse_template(text)) == text


@given(st.text() | st.sampled_from(["${params.x}", "$${a", "$$${"]))
def test_escaped_text_is_read_as_itself(text: str) -> None:
    assert "".join(str(piece) for piece in parse_template(escaped(text))) == text
