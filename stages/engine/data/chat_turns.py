"""Where the assistant's own words stand in the text of a conversation, for any chat template.

A reply begins where the prompt before it ends, and ends with the first end token after that: these are the bounds that
sampling has. Both are found by rendering, never by reading the template. What a template does that sampling could not
follow is an error that says where: a prompt that a later message rewrites, or a reply without an end token.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pydantic_core import to_json

from stages.engine.data.chat_template import ChatTemplate, Rendered
from stages.engine.data.literal import Place
from stages.engine.data.records import Message, Tool
from stages.errors import UserError

_CONTEXT_CHARS = 40
_MARKER = "q7content7q"


class Turn(NamedTuple):
    """A reply in the text of its conversation.

    Attributes:
        message: its index.
        start: where it begins, in characters.
        stop: where its end token begins.
        end: the text of that token.
        follows_prompt: the text before it is the prompt that it would be sampled from. It is not when a `generation`
            block leaves out a part of what the model would have to write.
    """

    message: int
    start: int
    stop: int
    end: str
    follows_prompt: bool

    @property
    def after(self) -> int:
        """Where the text after the end token begins."""
        return self.stop + len(self.end)


class Turns(NamedTuple):
    """A conversation as text, and the replies in it."""

    text: str
    turns: tuple[Turn, ...]


class TurnFinder:
    """Finds replies in the text of one template.

    Args:
        template: of the model.
        ends: texts of the tokens that end a reply.
    """

    def __init__(self, template: ChatTemplate, ends: Sequence[str]) -> None:
        self._template = template
        self._ends = ends

    def find(
        self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, generation_prompt: bool = False
    ) -> Turns:
        """The text and its replies.

        Args:
            messages: in order.
            tools: that the model may call.
            generation_prompt: whether the text ends where the assistant begins to reply.

        Raises:
            UserError: the template refuses the conversation, or a reply cannot be told from the rest.
        """
        self._check_ends(messages)
        whole = self._template.render(messages, tools, generation_prompt=generation_prompt)
        replies = [index for index, message in enumerate(messages) if message.role == "assistant"]
        if self._template.marks_replies and len(whole.blocks) != len(replies):
            raise UserError(
                f"{self._template.origin}: chat template: it marks {len(whole.blocks)} generated parts in a "
                f"conversation with {len(replies)} replies"
            )
        last = None if generation_prompt else len(messages) - 1
        found = (
            self._find_one(whole, messages, index, number, tools, is_last=index == last)
            for number, index in enumerate(replies)
        )
        return Turns(whole.text, tuple(found))

    def check_verbatim(self, turns: Turns, messages: Sequence[Message]) -> None:
        """Checks that the template writes every reply as it is, up to white space, and all its tool calls.

        Raises:
            UserError: it leaves something out or changes it: the model would learn, or see, what nobody wrote.
        """
        for turn in turns.turns:
            message = messages[turn.message]
            written = turns.text[turn.start : turn.stop]
            if _without_space(message.content) not in _without_space(written):
                raise self._refusal(
                    turn.message,
                    f"the template writes {_short(written)} for the reply {_short(message.content)}. Templates of "
                    "reasoning models drop the reasoning of earlier turns: end the conversation with this reply",
                )
            missing = [call.name for call in message.tool_calls if call.name not in written]
            if missing:
                raise self._refusal(turn.message, f"the template does not write the call of {missing[0]!r}")

    def check_prompts(self, turns: Turns) -> None:
        """Checks that every reply follows the prompt that it would be sampled from.

        Raises:
            UserError: the template marks less than the whole reply.
        """
        for turn in turns.turns:
            if not turn.follows_prompt:
                raise self._refusal(turn.message, "the text before the reply is not the prompt that it is sampled from")

    def _check_ends(self, messages: Sequence[Message]) -> None:
        """A reply ends with its first end token: one within it would cut it off."""
        for index, message in enumerate(messages):
            if message.role == "assistant":
                written = message.model_dump_json(include={"content", "tool_calls"})
                held = next((end for end in self._ends if to_json(end).decode()[1:-1] in written), None)
                if held is not None:
                    raise self._refusal(index, f"it holds {held}, which ends a reply; end the message before it")

    def _find_one(
        self,
        whole: Rendered,
        messages: Sequence[Message],
        index: int,
        number: int,
        tools: Sequence[Tool],
        *,
        is_last: bool,
    ) -> Turn:
        prompt = self._template.render(messages[:index], tools, generation_prompt=True).text
        alone = self._template.render(messages[: index + 1], tools, generation_prompt=False)
        turn = self._locate(whole, prompt, index, number)
        if is_last:
            return turn
        last = self._locate(alone, prompt, index, number)
        written, as_last = whole.text[turn.start : turn.after], alone.text[last.start : last.after]
        # A template may write an empty thought before the last reply only.
        if not as_last.endswith(written):
            raise self._refusal(
                index,
                f"the template writes {_short(as_last)} while it is the last, {_short(written)} when others follow",
            )
        return turn

    def _locate(self, rendered: Rendered, prompt: str, index: int, number: int) -> Turn:
        """The reply of a message, the `number`-th reply of the text."""
        text, follows = rendered.text, rendered.text.startswith(prompt)
        if number < len(rendered.blocks):
            start = rendered.blocks[number][0]
            follows = follows and start == len(prompt)
        elif follows:
            start = len(prompt)
        else:
            raise self._refusal(index, f"the prompt is not a prefix of its continuation: {_difference(prompt, text)}")
        ends = [(text.find(end, start), -len(end), end) for end in self._ends if text.find(end, start) >= 0]
        if not ends:
            raise self._refusal(
                index, f"the template writes no end token after it (looked for {', '.join(self._ends)})"
            )
        stop, _, end = min(ends)
        return Turn(index, start, stop, end, follows)

    def _refusal(self, index: int, why: str) -> UserError:
        return UserError(f"{self._template.origin}: chat template: message {index} (assistant): {why}")


def locate_contents(
    template: ChatTemplate,
    whole: str,
    messages: Sequence[Message],
    tools: Sequence[Tool],
    *,
    generation_prompt: bool = False,
) -> Iterator[tuple[int, Place]]:
    """Index and place, in characters, of each content of system, user and tool that the text holds exactly once.

    The content is replaced by a marker: what is then before and after the marker is before and after the content. A
    content that changes how the template writes the rest, or that it leaves out, has no place.
    """
    for index, message in enumerate(messages):
        if message.role == "assistant":
            continue
        marked = [*messages[:index], message.model_copy(update={"content": _MARKER}), *messages[index + 1 :]]
        text = template.render(marked, tools, generation_prompt=generation_prompt).text
        before, marker, after = text.partition(_MARKER)
        fits = whole.startswith(before) and whole.endswith(after) and len(before) + len(after) <= len(whole)
        if marker and _MARKER not in after and fits:
            yield index, (len(before), len(whole) - len(after))


def _difference(prompt: str, text: str) -> str:
    """Where a prompt and its continuation part."""
    pairs = enumerate(zip(prompt, text, strict=False))
    place = next((index for index, (a, b) in pairs if a != b), min(len(prompt), len(text)))
    return f"from character {place} the prompt has {_short(prompt[place:])}, the conversation {_short(text[place:])}"


def _without_space(text: str) -> str:
    return "".join(text.split())


def _short(text: str) -> str:
    return repr(text if len(text) <= _CONTEXT_CHARS else f"{text[:_CONTEXT_CHARS]}…")
