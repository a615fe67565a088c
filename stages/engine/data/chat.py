"""A conversation as token ids, by the model's own chat template."""

import json
from collections.abc import Sequence

from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import JsonValue

from stages.engine.data.batching import Group
from stages.engine.data.records import Message, Row
from stages.engine.data.tokenizer import Tokenizer
from stages.errors import UserError

_MARKER = "⟦reply⟧"


class Chat:
    """Prompts and responses in ids: a prompt is the template's text, a response is a reply and the end of its turn.

    Attributes:
        tokenizer: of the same model.
        end_id: the token that ends a reply; it is part of the response.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Compile the template.

        Raises:
            UserError: the model has no chat template, or a broken one.
        """
        if tokenizer.chat_template is None:
            raise UserError(f"{tokenizer.origin}: the model has no chat template; choose an instruction-tuned one")
        self.tokenizer = tokenizer
        self._template = _compile(tokenizer.chat_template, tokenizer.origin)
        self.end_id = self._find_end_id()

    def render(self, messages: Sequence[Message], *, generation_prompt: bool) -> str:
        """The conversation as text.

        Args:
            messages: in order.
            generation_prompt: whether the text ends where the assistant begins to reply.

        Raises:
            UserError: the template refuses the conversation.
        """
        try:
            return self._template.render(
                messages=[{"role": message.role, "content": message.content} for message in messages],
                add_generation_prompt=generation_prompt,
                bos_token=self.tokenizer.bos_token,
                eos_token=self.tokenizer.eos_token,
            )
        except (TemplateError, TypeError) as error:
            raise UserError(f"{self.tokenizer.origin}: chat template: {error}") from error

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """Ids of the conversation, up to where the assistant begins to reply."""
        return self.tokenizer.encode(self.render(messages, generation_prompt=True))

    def response_ids(self, reply: str) -> list[int]:
        """Ids of a reply with its end token.

        They are those of the reply alone, as from a sampler: prompt and response are never tokenised together.
        """
        return [*self.tokenizer.encode(reply), self.end_id]

    def reply_text(self, response: Sequence[int]) -> str:
        """Text of a response, without special tokens."""
        return self.tokenizer.decode(response)

    def _find_end_id(self) -> int:
        """The end token that the template writes after a reply, or the tokenizer's own when it writes none."""
        turns = [Message(role="user", content="?"), Message(role="assistant", content=_MARKER)]
        after_reply = self.render(turns, generation_prompt=False).rpartition(_MARKER)[2]
        ends = (token_id for token_id in self.tokenizer.encode(after_reply) if token_id in self.tokenizer.eos_ids)
        return next(ends, self.tokenizer.eos_id)


def make_examples(rows: Sequence[Row], chat: Chat, max_tokens: int) -> list[Group]:
    """Each row as its prompt and one response.

    Args:
        rows: with the response to learn.
        chat: of the trained model.
        max_tokens: longest prompt and response together.

    Raises:
        UserError: a row is longer; the message names the first and counts all.
    """
    examples = [Group(chat.prompt_ids(row.messages), [chat.response_ids(row.response)]) for row in rows]
    lengths = {row.id: len(prompt) + len(response) for row, (prompt, (response,)) in zip(rows, examples, strict=True)}
    too_long = [row_id for row_id, length in lengths.items() if length > max_tokens]
    if too_long:
        first = f"row {too_long[0]} has {lengths[too_long[0]]} tokens"
        raise UserError(f"{first}, more than max_tokens = {max_tokens}; so have {len(too_long)} of {len(rows)} rows")
    return examples


def _compile(source: str, origin: str) -> Template:
    """Compile in a sandbox that can change nothing, with the functions that published templates expect.

    The clock is left out: a prompt must not depend on the day.
    """
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.globals["raise_exception"] = _raise_exception
    environment.filters["tojson"] = _to_json
    try:
        return environment.from_string(source)
    except TemplateError as error:
        raise UserError(f"{origin}: chat template: {error}") from error


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _to_json(value: JsonValue, indent: int | None = None) -> str:
    """JSON as models were trained on it; the filter that Jinja brings would escape it for web pages."""
    return json.dumps(value, ensure_ascii=False, indent=indent)
