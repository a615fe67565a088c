"""Prompts and the replies to them, each as text or as messages."""

import re
from collections.abc import Sequence

from stages.engine.data.formats.fields import BadRowError, Fields, parsed, shown
from stages.engine.data.formats.turns import common_beginning, read_messages
from stages.engine.data.records import Message

_SPEAKER = re.compile(r"\s*\b(Human|Assistant): ?")
"""Of conversations in one text, as in Anthropic's data of preferences (arXiv 2204.05862)."""
_FIRST_SPEAKER = re.compile(r"\s*Human: ?")


def read_prompt(fields: Fields) -> tuple[Message, ...]:
    """System message, earlier questions and replies, and the question, as far as a row has them.

    Raises:
        BadRowError: the prompt is neither text nor a list of messages.
    """
    own = _text_or_messages(fields.need("prompt"), "user")
    if more := fields.optional_text("input"):
        if len(own) != 1:
            raise BadRowError("`input` goes on from a prompt that is text, and this one is messages")
        own = (Message(role="user", content=f"{own[0].content}\n\n{more}"),)
    return (*_history(fields.find("history")), *own)


def read_reply(value: object) -> tuple[Message, ...]:
    """A reply: the text of an assistant's turn, such a turn, or several that end with one."""
    return _text_or_messages(value, "assistant")


def split_pair(chosen: object, rejected: object) -> tuple[tuple[Message, ...], ...]:
    """Prompt, chosen and rejected reply of two whole conversations that begin alike.

    Raises:
        BadRowError: they begin with different messages.
    """
    first, second = _conversation(chosen), _conversation(rejected)
    num_shared = common_beginning(first, second)
    if not num_shared:
        raise BadRowError("the chosen and the rejected conversation do not begin with the same prompt")
    return first[:num_shared], first[num_shared:], second[num_shared:]


def holds_prompt(value: object) -> bool:
    """Whether a reply that was published is a whole conversation, with the prompt before it."""
    if isinstance(value, str):
        return _FIRST_SPEAKER.match(value) is not None
    return isinstance(value, list) and bool(value) and read_messages(value[:1])[0].role != "assistant"


def _conversation(value: object) -> tuple[Message, ...]:
    return _spoken(value) if isinstance(value, str) else read_messages(value)


def _spoken(text: str) -> tuple[Message, ...]:
    """The turns of a conversation in one text."""
    _, *parts = _SPEAKER.split(text)
    return tuple(
        Message(role="user" if speaker == "Human" else "assistant", content=content.strip())
        for speaker, content in zip(parts[::2], parts[1::2], strict=True)
    )


def _text_or_messages(value: object, role: str) -> tuple[Message, ...]:
    if isinstance(value, str):
        return (Message(role="assistant" if role == "assistant" else "user", content=value),)
    if isinstance(value, dict | list):
        return read_messages(value)
    raise BadRowError(f"expected text or messages, not {shown(value)}")


def _history(value: object) -> Sequence[Message]:
    """Earlier turns, as pairs of a question and the reply to it."""
    pairs = parsed(value) or []
    messages: list[Message] = []
    for pair in pairs if isinstance(pairs, list) else [pairs]:
        if not isinstance(pair, list) or [type(text) for text in pair] != [str, str]:
            raise BadRowError(f"history: expected pairs of a question and a reply, not {shown(pair)}")
        question, reply = map(str, pair)
        messages += [Message(role="user", content=question), Message(role="assistant", content=reply)]
    return messages
