"""A conversation in token ids, with the tokens of each message."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from stages.engine.data.chat_turns import Turns
from stages.engine.data.tokenizer import Tokenizer


class TokenSpan(NamedTuple):
    """Tokens from `start` up to, not including, `stop`."""

    start: int
    stop: int


@dataclass(frozen=True)
class Conversation:
    """T tokens and whose they are.

    Attributes:
        ids: what lies between two replies and each reply are tokenised apart, as when replies are sampled: the prompt
            of every reply is a prefix.
        spans: for each message its tokens: of a reply those that the model writes, its end token among them; of others
            those that hold a part of the content, or None where the template does not write the content as it is.
    """

    ids: list[int]
    spans: tuple[TokenSpan | None, ...]
    assistant_mask: Bool[np.ndarray, "T"]


class _Piece(NamedTuple):
    """A stretch of text tokenised apart, and the index of the reply that it is."""

    start: int
    stop: int
    message: int | None


def conversation_ids(turns: Turns, tokenizer: Tokenizer) -> list[int]:
    """Ids of a conversation, each stretch tokenised apart."""
    return [token for piece in _pieces(turns) for token in tokenizer.encode(turns.text[piece.start : piece.stop])]


def tokenise(
    turns: Turns, contents: Mapping[int, tuple[int, int]], num_messages: int, tokenizer: Tokenizer
) -> Conversation:
    """A conversation with its spans.

    Args:
        turns: its text and replies.
        contents: places of the other messages' contents, in characters.
        num_messages: replies and others.
        tokenizer: of the model.
    """
    ids: list[int] = []
    places: list[tuple[int, int]] = []
    spans: list[TokenSpan | None] = [None] * num_messages
    mask: list[bool] = []
    for piece in _pieces(turns):
        encoding = tokenizer.backend.encode(turns.text[piece.start : piece.stop], add_special_tokens=False)
        if piece.message is not None:
            spans[piece.message] = TokenSpan(len(ids), len(ids) + len(encoding.ids))
        ids += encoding.ids
        places += [(piece.start + start, piece.start + stop) for start, stop in encoding.offsets]
        mask += [piece.message is not None] * len(encoding.ids)
    for message, (start, stop) in contents.items():
        held = [token for token, place in enumerate(places) if place[0] < stop and place[1] > start]
        spans[message] = TokenSpan(held[0], held[-1] + 1) if held else None
    return Conversation(ids, tuple(spans), np.array(mask, np.bool_))


def _pieces(turns: Turns) -> Iterator[_Piece]:
    done = 0
    for turn in turns.turns:
        yield _Piece(done, turn.start, None)
        yield _Piece(turn.start, turn.after, turn.message)
        done = turn.after
    yield _Piece(done, len(turns.text), None)
