"""Rows to learn from as token ids: problems, conversations and texts, each with what of it is learnt."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Int32

from stages.engine.data.batching import Group
from stages.engine.data.chat import Chat
from stages.engine.data.records import ChatRow, Record, Row, TextRow
from stages.engine.data.refused import check_refused
from stages.engine.data.tokenizer import Tokenizer
from stages.errors import UserError

TooLong = Literal["error", "drop", "truncate"]
Learn = Literal["all_turns", "last_turn"]

_AT_ONCE = 256
"""Texts that are tokenised together."""


RecordT = TypeVar("RecordT", bound=Record)


class TokenRow(NamedTuple):
    """A row in T token ids, and which of them are learnt; never the first, since nothing predicts it."""

    id: str
    ids: Int32[np.ndarray, " T"]
    learnt: Bool[np.ndarray, " T"]


class RefusedRow(NamedTuple):
    """A row without tokens, and why."""

    id: str
    why: str


class Examples(NamedTuple):
    """Groups of one response.

    Attributes:
        groups: in the order of the rows that they are made of.
        num_truncated: that are the beginning of a longer row.
        num_dropped: rows that were left out: too long, or with nothing to learn in what was kept of them.
    """

    groups: list[Group]
    num_truncated: int
    num_dropped: int


def problem_rows(rows: Iterable[Row], chat: Chat) -> Iterator[TokenRow | RefusedRow]:
    """Prompts, and their responses, which are learnt."""

    def tokens(row: Row) -> TokenRow:
        prompt, response = chat.prompt_ids(row.messages, row.tools), chat.response_ids(row.response)
        ids = np.array([*prompt, *response], np.int32)
        return TokenRow(row.id, ids, np.arange(len(ids)) >= len(prompt))

    return _each(rows, tokens)


def conversation_rows(rows: Iterable[ChatRow], chat: Chat, learn: Learn) -> Iterator[TokenRow | RefusedRow]:
    """Conversations, of which the assistant's turns are learnt after those that are given: all, or only the last."""

    def tokens(row: ChatRow) -> TokenRow:
        ids, replies = chat.authored_ids(row.messages, row.tools)
        first = max(row.num_given, int(replies.max()) if learn == "last_turn" else 0)
        return TokenRow(row.id, ids, replies >= first)

    return _each(rows, tokens)


def text_rows(rows: Iterable[TextRow], tokenizer: Tokenizer) -> Iterator[TokenRow]:
    """Texts from the token that begins one, where the model has it, to the one that ends one.

    A text is learnt but for its first token; after a prompt, which is tokenised apart, all of it is. Special tokens
    that are written out in a text count as what they are.
    """
    bos = tokenizer.backend.token_to_id(tokenizer.bos_token) if tokenizer.bos_token else None
    begin = [] if bos is None else [bos]
    remaining = iter(rows)
    while some := list(islice(remaining, _AT_ONCE)):
        prompts = tokenizer.encode_many([row.prompt for row in some])
        texts = tokenizer.encode_many([row.text for row in some])
        for row, prompt, text in zip(some, prompts, texts, strict=True):
            given = begin + prompt
            ids = np.array([*given, *text, tokenizer.eos_id], np.int32)
            yield TokenRow(row.id, ids, np.arange(len(ids)) >= max(len(given), 1))


def fit_lengths(rows: Iterable[TokenRow | RefusedRow], max_tokens: int, too_long: TooLong) -> Examples:
    """Rows as groups: the prompt is what is before the first learnt token, what is after the last is left out.

    Args:
        rows: of a dataset.
        max_tokens: longest row.
        too_long: whether longer rows are an error, left out, or cut after `max_tokens`.

    Raises:
        UserError: rows were refused, or are too long, or none is left; the message names the first and counts all.
    """
    groups: list[Group] = []
    refused: list[str] = []
    long: list[str] = []
    num_rows = num_truncated = 0
    for row in rows:
        num_rows += 1
        if isinstance(row, RefusedRow):
            refused.append(f"row {row.id}: {row.why}")
            continue
        is_long = len(row.ids) > max_tokens
        if is_long:
            long.append(f"row {row.id} has {len(row.ids)} tokens, more than max_tokens = {max_tokens}")
        is_kept = too_long == "truncate" or not is_long
        group = _make_group(row.ids[:max_tokens], row.learnt[:max_tokens]) if is_kept else None
        if group is not None:
            groups.append(group)
            num_truncated += is_long
    check_refused(refused, num_rows)
    if long and (too_long == "error" or not groups):
        raise UserError(f"{long[0]}; so have {len(long)} of {num_rows} rows")
    if not groups:
        raise UserError(f"none of {num_rows} rows has a token to learn")
    return Examples(groups, num_truncated, num_rows - len(groups))


def _each(rows: Iterable[RecordT], tokens: Callable[[RecordT], TokenRow]) -> Iterator[TokenRow | RefusedRow]:
    for row in rows:
        try:
            yield tokens(row)
        except UserError as error:
            yield RefusedRow(row.id, str(error))


def _make_group(ids: Int32[np.ndarray, " T"], learnt: Bool[np.ndarray, " T"]) -> Group | None:
    targets = np.flatnonzero(learnt)
    if not len(targets):
        return None
    first, stop = int(targets[0]), int(targets[-1]) + 1
    own = learnt[first:stop]
    # Copies: slices would keep the whole row in memory.
    return Group(ids[:first].copy(), [ids[first:stop].copy()], None if own.all() else [own.copy()])
