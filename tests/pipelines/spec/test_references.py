import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.spec.references import OutputReference, ParamReference, ReferenceSyntaxError, parse_template


def test_text_is_split_into_pieces_and_references() -> None:
    assert parse_template("a ${params.x}-${ stages.s-1.outputs.o }") == (
        "a ",
        ParamReference("x"),
        "-",
        OutputReference("s-1", "o"),
    )


def test_a_doubled_dollar_sign_escapes() -> None:
    assert parse_template("cost $5, $${params.x}") == ("cost $5, ${params.x}",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${params.x", "not closed"),
        ("${}", "expected `${params.NAME}`"),
        ("${params.a.b}", "expected `${params.NAME}`"),
        ("${param.a}", "(did you mean `params`?)"),
        ("${stages.a.output.b}", "(did you mean `outputs`?)"),
        ("${env.HOME}", "bad reference `${env.HOME}`"),
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
