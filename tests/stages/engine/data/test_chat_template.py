"""What a template may use, and what it is refused."""

import pytest

from stages.engine.data import template_sandbox
from stages.engine.data.chat_template import ChatTemplate
from stages.engine.data.records import Message, Tool, ToolCall
from stages.errors import UserError

DOUBLED = "{% set o = namespace(a='ab') %}{% for i in range(40) %}{% set o.a = o.a ? o.a %}{% endfor %}"
TURN = [Message(role="user", content="hi")]


def render(source: str, messages: list[Message] = TURN, tools: tuple[Tool, ...] = ()) -> str:
    return ChatTemplate(source, "folder", "<s>", "</s>").render(messages, tools, generation_prompt=True).text


def test_a_template_sees_tools_only_where_there_are_any() -> None:
    tool = Tool(name="add", description="Adds.", parameters={"type": "object"})
    assert render("{{ tools is defined }}") == "False"
    assert render("{{ tools | tojson }}", tools=(tool,)) == (
        '[{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}}]'
    )


def test_a_template_sees_of_a_message_what_it_has() -> None:
    messages = [
        Message(role="user", content="1 + 2"),
        Message(role="assistant", content="", tool_calls=(ToolCall(name="add", arguments={"b": 2, "a": 1}, id="7"),)),
        Message(role="tool", content="3", tool_call_id="7", name="add"),
    ]
    call = '{"type": "function", "function": {"name": "add", "arguments": {"b": 2, "a": 1}}, "id": "7"}'
    assert render("{% for m in messages %}{{ m | tojson }}\n{% endfor %}", messages).splitlines() == [
        '{"role": "user", "content": "1 + 2"}',
        f'{{"role": "assistant", "content": "", "tool_calls": [{call}]}}',
        '{"role": "tool", "content": "3", "tool_call_id": "7", "name": "add"}',
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("", '{"b": "<é>", "a": [1]}'),
        ("ensure_ascii=True", '{"b": "<\\u00e9>", "a": [1]}'),
        ("separators=(',', ':')", '{"b":"<é>","a":[1]}'),
        ("sort_keys=True", '{"a": [1], "b": "<é>"}'),
        ("indent=1", '{\n "b": "<é>",\n "a": [\n  1\n ]\n}'),
    ],
)
def test_json_is_written_as_published_templates_ask(arguments: str, text: str) -> None:
    assert render("{% set v = {'b': '<é>', 'a': [1]} %}{{ v | tojson(" + arguments + ") }}") == text


def test_methods_of_strings_lists_and_objects_work() -> None:
    source = "{{ ' a-b '.strip().split('-') | join(',') }} {{ {'k': 1}.get('x', 2) }} {{ {'k': 1}.items() | list }}"
    assert render(source) == "a,b 2 [('k', 1)]"


def test_a_template_with_a_date_of_its_own_does_not_depend_on_the_day() -> None:
    source = (
        "{% if not date_string is defined %}{% if strftime_now is defined %}{% set date_string = strftime_now('%d') %}"
        "{% else %}{% set date_string = '26 Jul 2024' %}{% endif %}{% endif %}{{ date_string }}"
    )
    assert render(source) == "26 Jul 2024"


def test_generation_blocks_are_found_and_leave_no_trace() -> None:
    source = "{% for m in messages %}[{%- generation %} {{ m.content }}{% endgeneration %}]{% endfor %}"
    template = ChatTemplate(source, "folder", "", "")
    text, blocks = template.render([*TURN, *TURN], generation_prompt=False)
    assert text == "[ hi][ hi]"
    assert [text[start:stop] for start, stop in blocks] == [" hi", " hi"]
    with pytest.raises(UserError, match=r"a message holds U\+FDD0"):
        template.render([Message(role="user", content="\ufdd0")], generation_prompt=False)
    assert render("{{ messages[0].content }}", [Message(role="user", content="\ufdd0")]) == "\ufdd0"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ strftime_now('%d') }}", "'strftime_now' is undefined: it writes today's date"),
        ("{{ 'a' * 100000000 }}", "repeats a value 100000000 times"),
        ("{{ 100000000 * [1] }}", "repeats a value 100000000 times"),
        ("{{ 9 ** 387420489 }}", "power 387420489 is too high"),
        ("{% for i in range(1000000) %}{% endfor %}", "Range too big"),
        ("{% for i in range(99999) %}{{ 'a' * 999 }}{% endfor %}", "more than 16777216 characters"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "calls itself without end"),
        (DOUBLED.replace("?", "~"), "builds a value of more than 16777216"),
        (DOUBLED.replace("?", "+"), "builds a value of more than 16777216"),
        ("{{ 'a'.center(100000000) }}", "the width 100000000 is too large"),
        ("{{ '%100000000d' % 1 }}", "fills a value up to a width"),
        ("{{ '{:>100000000}'.format(1) }}", "fills a value up to a width"),
        ("{{ lipsum(9) }}", "'lipsum' is undefined"),
        ("{{ messages.clear() }}", "unsafe"),
        ("{{ ''.__class__.__subclasses__() }}", "unsafe"),
        ("{{ missing | tojson }}", "TypeError: .*Undefined is not JSON"),
        ("{{ 1 // 0 }}", "ZeroDivisionError"),
        ("{{ missing.field }}", "'missing' is undefined"),
        ("{% generation %}", "Unexpected end"),
    ],
)
def test_what_a_template_may_not_do_is_an_error_that_says_what(source: str, message: str) -> None:
    with pytest.raises(UserError, match=rf"^folder: chat template: .*{message}"):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
        "{% for m in messages recursive %}{{ loop(messages) }}{{ loop(messages) }}{% endfor %}",
    ],
)
def test_a_template_that_runs_on_and_on_is_stopped(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_sandbox, "MAX_SECONDS", 0.1)
    with pytest.raises(UserError, match=r"runs for more than 0.1 seconds|calls itself without end"):
        render(source)


def test_large_numbers_are_values_like_others() -> None:
    source = "{% macro m(v) %}{{ v | tojson }}{% endmacro %}{{ m(1767225600000) }} {{ 4294967295 + 1 }}"
    assert render(source) == "1767225600000 4294967296"


def test_a_watched_loop_has_all_that_a_loop_has() -> None:
    source = (
        "{% for m in messages * 3 if m.role %}{{ loop.index }}/{{ loop.length }}{{ loop.revindex }}"
        "{{ '.' if loop.last else loop.nextitem.role }}{% else %}-{% endfor %}"
        "{% for m in [] %}{% else %}none{% endfor %}{% for k, v in {'a': 1}.items() %}{{ k ~ v ~ '!' }}{% endfor %}"
    )
    assert render(source) == "1/33user2/32user3/31.nonea1!"
