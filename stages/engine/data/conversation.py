"""A conversation in token ids, with the tokens of each message."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int32

from stages.engine.data.chat_turns import Turns
from stages.engine.data.literal import Encoded, Place, encode
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
            those that hold a part of the content, or None where there is none, or where the template does not write
            it as it is.
    """

    ids: list[int]
    spans: tuple[TokenSpan | None, ...]
    assistant_mask: Bool[np.ndarray, "T"]


class Authored(NamedTuple):
    """T tokens of a conversation, and of each the index of the reply that it is in, or -1."""

    ids: Int32[np.ndarray, " T"]
    replies: Int32[np.ndarray, " T"]


class _Piece(NamedTuple):
    """A stretch of text tokenised apart, and the index of the reply that it is."""

    start: int
    stop: int
    message: int | None


def conversation_ids(turns: Turns, literal: Sequence[Place], tokenizer: Tokenizer, *, start: int = 0) -> list[int]:
    """Ids of a conversation, each stretch tokenised apart.

    Args:
        turns: its text and replies.
        literal: places, in characters, where a special token is only words.
        tokenizer: of the model.
        start: character that begins what is wanted: 0, or the end of a reply.
    """
    pieces = (piece for piece in _pieces(turns) if piece.start >= start)
    return [token for piece in pieces for token in _encode(turns, piece, literal, tokenizer).ids]


def authored_ids(turns: Turns, literal: Sequence[Place], tokenizer: Tokenizer) -> Authored:
    """Ids of a whole conversation with the replies in it, as `conversation_ids`."""
    pieces = list(_pieces(turns))
    if literal:
        ids = [_encode(turns, piece, literal, tokenizer).ids for piece in pieces]
    else:  # faster, since places of tokens are not asked for
        ids = tokenizer.encode_many([turns.text[piece.start : piece.stop] for piece in pieces])
    replies = np.array([-1 if piece.message is None else piece.message for piece in pieces], np.int32)
    return Authored(np.array([*chain(*ids)], np.int32), np.repeat(replies, [len(part) for part in ids]))


def tokenise(turns: Turns, contents: Mapping[int, Place], num_messages: int, tokenizer: Tokenizer) -> Conversation:
    """A conversation with its spans.

    Args:
        turns: its text and replies.
        contents: places of the other messages' contents, in characters; special tokens are only words there.
        num_messages: replies and others.
        tokenizer: of the model.
    """
    ids: list[int] = []
    places: list[Place] = []
    spans: list[TokenSpan | None] = [None] * num_messages
    mask: list[bool] = []
    for piece in _pieces(turns):
        encoded = _encode(turns, piece, list(contents.values()), tokenizer)
        if piece.message is not None:
            spans[piece.message] = TokenSpan(len(ids), len(ids) + len(encoded.ids))
        ids += encoded.ids
        places += [(piece.start + start, piece.start + stop) for start, stop in encoded.places]
        mask += [piece.message is not None] * len(encoded.ids)
    for message, (start, stop) in contents.items():
        if start == stop:
            continue
        held = [token for token, place in enumerate(places) if place[0] < stop and place[1] > start]
        spans[message] = TokenSpan(held[0], held[-1] + 1) if held else None
    return Conversation(ids, tuple(spans), np.array(mask, np.bool_))


def _encode(turns: Turns, piece: _Piece, literal: Sequence[Place], tokenizer: Tokenizer) -> Encoded:
    within = [(start - piece.start, stop - piece.start) for start, stop in literal]
    return encode(tokenizer, turns.text[piece.start : piece.stop], within)


def _pieces(turns: Turns) -> Iterator[_Piece]:
    done = 0
    for turn in turns.turns:
        yield _Piece(done, turn.start, None)
        yield _Piece(turn.start, turn.after, turn.message)
        done = turn.after
    yield _Piece(done, len(turns.text), None)
