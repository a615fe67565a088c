"""What a reply says and calls, and what is wrong with one that cannot be read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from stages.engine.data.records import ToolCall

Json = dict[str, object] | list[object] | str | bool | int | float | None
"""What was read; `ToolCall` checks what is inside."""


class ToolTurn(NamedTuple):
    """A reply, read.

    Attributes:
        content: its text without the calls; all of it when there is none.
        calls: in the order in which they are written.
    """

    content: str
    calls: tuple[ToolCall, ...]


@dataclass(frozen=True)
class ToolCallError:
    """Why a reply's calls cannot be read: a value and no exception, since an agent records it and goes on.

    Attributes:
        reason: what is malformed.
        position: where, in characters of the reply.
    """

    reason: str
    position: int


class MalformedCallError(Exception):
    """Ends the reading of a reply; never leaves `ToolCallFormat.parse`."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason)
        self.error = ToolCallError(reason, position)


@dataclass(frozen=True)
class ToolCallFormat:
    """One way to write calls.

    Attributes:
        name: in messages and tables.
        read: a reply; raises `MalformedCallError`.
        render: calls as a model would write them, so that `parse` gives them back, without their ids. Raises
            `UserError` for a call that the format cannot express.
    """

    name: str
    read: Callable[[str], ToolTurn]
    render: Callable[[Sequence[ToolCall]], str]

    def parse(self, reply: str) -> ToolTurn | ToolCallError:
        """Read a reply.

        Args:
            reply: text with its special tokens, without the end token.
        """
        try:
            return self.read(reply)
        except MalformedCallError as malformed:
            return malformed.error


def make_call(name: object, arguments: object, position: int) -> ToolCall:
    """A call, checked: a name, arguments by name, and text that can be stored.

    Raises:
        MalformedCallError: it is none.
    """
    if not isinstance(name, str) or not name:
        raise MalformedCallError("the call has no name", position)
    if not isinstance(arguments, dict):
        raise MalformedCallError(f"the arguments of {name!r} are not an object", position)
    try:
        call = ToolCall.model_validate({"name": name, "arguments": arguments})
        call.model_dump_json()
    except ValidationError as error:
        raise MalformedCallError(f"the arguments of {name!r}: {error.errors()[0]['msg']}", position) from error
    except PydanticSerializationError as error:
        raise MalformedCallError(f"the call of {name!r} holds half a character", position) from error
    return call


def outside(parts: Sequence[str]) -> str:
    """The text around calls, as one."""
    return "\n".join(part.strip() for part in parts if part.strip())
