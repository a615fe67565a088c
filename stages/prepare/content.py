"""What is said in a record: for finding the same again, and for its length."""

import hashlib
import unicodedata
from collections.abc import Sequence
from typing import Literal, NamedTuple

from stages.engine.data.records import (
    ChatRow,
    LabelledRow,
    Message,
    PreferenceRow,
    Record,
    Row,
    TextRow,
    Tool,
)

Sameness = Literal["exact", "normalised"]

_BETWEEN = " \0 "
"""Between turns: no text holds it, and the spaces keep it apart from words."""


class Content(NamedTuple):
    """What is said in a record.

    Attributes:
        prompt: what is asked.
        all: everything, by which two records are the same; of a problem its question.
        num_characters: without the names of the speakers.
        num_messages: of prompt and replies; 0 of a text.
    """

    prompt: str
    all: str
    num_characters: int
    num_messages: int


def content_of(record: Record) -> Content:
    """What is said in a record."""
    match record:
        case TextRow(prompt=prompt, text=text):
            return Content(prompt + text, prompt + text, len(prompt) + len(text), 0)
        case Row(messages=prompt, response=response):
            asked = _said(prompt)
            return Content(asked, asked, _num_characters(prompt) + len(response), len(prompt) + 1)
        case ChatRow(messages=messages, num_given=num_given, tools=tools):
            replies = (at for at, one in enumerate(messages) if one.role == "assistant" and at >= num_given)
            start = next(replies, len(messages))
            return _content(tools, messages[:start], messages[start:])
        case PreferenceRow(messages=prompt, chosen=chosen, rejected=rejected, tools=tools):
            return _content(tools, prompt, chosen, rejected)
        case LabelledRow(messages=prompt, response=response, tools=tools):
            return _content(tools, prompt, response)
        case _:
            raise TypeError(f"{type(record).__name__} is no known record")


def fingerprint(text: str, sameness: Sameness) -> int:
    """64 bits that are the same for two texts that are: exactly, or but for case, white space and composed letters."""
    if sameness == "normalised":
        composed = text if text.isascii() else unicodedata.normalize("NFC", text)
        text = " ".join(composed.casefold().split())
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _content(tools: Sequence[Tool], prompt: Sequence[Message], *replies: Sequence[Message]) -> Content:
    parts = (prompt, *replies)
    said = _BETWEEN.join([*map(_said, parts), *(tool.model_dump_json() for tool in tools)])
    asked = _said([message for message in prompt if message.role != "system"])
    # What begins with the assistant asks nothing: it is its own prompt.
    return Content(asked or said, said, sum(map(_num_characters, parts)), sum(map(len, parts)))


def _said(messages: Sequence[Message]) -> str:
    return _BETWEEN.join(f"{message.role}{_BETWEEN}{message.content} {_calls(message)}" for message in messages)


def _calls(message: Message) -> str:
    return "".join(call.model_dump_json() for call in message.tool_calls)


def _num_characters(messages: Sequence[Message]) -> int:
    return sum(len(message.content) + len(_calls(message)) for message in messages)
