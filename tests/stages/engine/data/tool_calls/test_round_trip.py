"""What a format writes it reads again, whatever the calls; no reply makes a parser fail."""

from collections.abc import Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stages.engine.data.records import ToolCall
from stages.engine.data.tool_calls.catalog import FORMATS
from stages.engine.data.tool_calls.turn import ToolCallError, ToolTurn

EACH_FORMAT = pytest.mark.parametrize("name", list(FORMATS))
texts = st.text(st.characters(codec="utf-8"), max_size=12)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
names = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).filter(lambda name: name not in {"if", "in", "is", "or"})
calls = st.builds(ToolCall, name=names.map("t_{}".format), arguments=st.dictionaries(names | texts, values, max_size=3))
MARKS = (
    '{ } [ ] ( ) " : , = ; \\ - <tool_call> </tool_call> {"name":"f", "arguments": "parameters": f(a=1) ``` [f( '
    "f.call( <|python_tag|> call:f <escape> <start_function_call> <end_function_call> 1e999 \\ud800 None "
    "NaN <think> </think> é"
)
pieces = st.sampled_from([*MARKS.split(" "), " ", "\n", "\r", "\x0c", "\ud800", "```tool_code\n"])
few = settings(max_examples=60, deadline=None)


def written(name: str, some: Sequence[ToolCall]) -> str:
    if name == "function_gemma":
        assume("<escape>" not in repr(some))
    return FORMATS[name].render(some)


@EACH_FORMAT
@few
@given(some=st.lists(calls, max_size=3))
def test_calls_survive_writing_and_reading(name: str, some: list[ToolCall]) -> None:
    turn = FORMATS[name].parse(written(name, some))
    assert isinstance(turn, ToolTurn)
    assert turn.content == ""
    # 1, 1.0 and True are equal in Python, but not to a tool.
    assert [call.model_dump_json() for call in turn.calls] == [call.model_dump_json() for call in some]


@EACH_FORMAT
@few
@given(call=calls, data=st.data())
def test_a_call_that_is_cut_off_is_never_read_as_a_call(name: str, call: ToolCall, data: st.DataObject) -> None:
    whole = written(name, [call]).rstrip()
    reply = whole[: data.draw(st.integers(0, len(whole) - 1))]
    turn = FORMATS[name].parse(reply)
    if isinstance(turn, ToolCallError):
        assert 0 <= turn.position <= len(reply)
    else:
        assert turn == ToolTurn(reply, ())


@EACH_FORMAT
@few
@given(reply=st.lists(pieces, max_size=14).map("".join))
def test_no_reply_makes_a_parser_fail(name: str, reply: str) -> None:
    turn = FORMATS[name].parse(reply)
    if isinstance(turn, ToolCallError):
        assert 0 <= turn.position <= len(reply)
        assert turn.reason
    else:
        assert turn.calls or turn.content == reply
        for call in turn.calls:
            assert ToolCall.model_validate_json(call.model_dump_json()) == call


@EACH_FORMAT
@pytest.mark.parametrize("reply", ["", "It is 3.", "see [1] and {x: 2}\n", "```python\nprint(1)\n```", '{"answer": 3}'])
def test_text_without_calls_stays_as_it_is(name: str, reply: str) -> None:
    assert FORMATS[name].parse(reply) == ToolTurn(reply, ())


@EACH_FORMAT
@pytest.mark.parametrize("opening", ["[", "{", '{"a":', "-", "(", "<escape>", "{a:", "f(a="])
def test_a_reply_nested_without_end_is_an_error(name: str, opening: str) -> None:
    starts = {
        "qwen": '<tool_call>{"name": "f", "arguments": ',
        "llama": '{"name": "f", "parameters": ',
        "gemma": "```tool_code\nf(a=",
        "function_gemma": "<start_function_call>call:f{a:",
    }
    reply = starts[name] + opening * 20_000 + ("\n```" if name == "gemma" else "")
    assert isinstance(FORMATS[name].parse(reply), ToolCallError)
