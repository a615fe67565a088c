"""Rows of preferences in token ids: a group of two responses to one prompt, or of one that is labelled."""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int32

from stages.engine.data.batching import Group
from stages.engine.data.chat import Chat
from stages.engine.data.records import LabelledRow, Message, PreferenceRow, open_dataset
from stages.engine.data.refused import check_refused
from stages.errors import UserError

logger = logging.getLogger(__name__)


class Preferences(NamedTuple):
    """N groups of G responses.

    Attributes:
        ids: of the rows.
        groups: of a pair the chosen response comes first.
        desirable: of each response: whether it is chosen, or labelled as desirable.
        margins: of pairs: by how much the chosen response is better; 0 where the row does not say.
        num_identical: pairs that were left out because their responses are the same.
    """

    ids: list[str]
    groups: list[Group]
    desirable: Bool[np.ndarray, "N G"]
    margins: Float32[np.ndarray, " N"]
    num_identical: int


class _Reply(NamedTuple):
    ids: Int32[np.ndarray, " T"]
    learnt: Bool[np.ndarray, " T"]


def read_preferences(
    folder: Path,
    takes: Sequence[type[PreferenceRow | LabelledRow]],
    chat: Chat,
    max_tokens: int,
    identical_pairs: Literal["fail", "drop"],
) -> Preferences:
    """A dataset's rows as groups; pairs that are left out are told in the log.

    Args:
        folder: of the dataset.
        takes: the kinds of rows that the caller knows what to do with.
        chat: of the model.
        max_tokens: longest prompt and response together.
        identical_pairs: what becomes of pairs whose responses are the same tokens.

    Raises:
        UserError: it has other rows, or some that cannot be used.
    """
    found = make_preferences(open_dataset(folder, *takes), chat, max_tokens, identical_pairs)
    if found.num_identical:
        logger.warning("%s: %d pairs of identical responses are left out", folder, found.num_identical)
    return found


def make_preferences(
    rows: Iterable[PreferenceRow | LabelledRow], chat: Chat, max_tokens: int, identical_pairs: Literal["fail", "drop"]
) -> Preferences:
    """Every row as a group.

    Args:
        rows: all pairs, or all labelled.
        chat: of the trained model.
        max_tokens: longest prompt and response together.
        identical_pairs: what becomes of pairs whose responses are the same tokens.

    Raises:
        UserError: rows cannot be used; the first ones are named with their reasons, and all are counted.
    """
    ids, groups, desirable, margins = list[str](), list[Group](), list[list[bool]](), list[float]()
    problems, identical = list[str](), list[str]()
    for row in rows:
        try:
            group = _make_group(row, chat, max_tokens)
        except UserError as error:
            problems.append(f"row {row.id}: {error}")
            continue
        if _says_nothing(group):
            identical.append(f"row {row.id}: chosen and rejected are the same {len(group.responses[0])} tokens")
            continue
        ids.append(row.id)
        groups.append(group)
        margins.append(0.0 if isinstance(row, LabelledRow) else row.margin or 0.0)
        desirable.append([row.label] if isinstance(row, LabelledRow) else [True, False])
    if identical_pairs == "fail" and identical:
        problems += [*identical[:-1], f"{identical[-1]}; identical_pairs: drop leaves such rows out"]
    check_refused(problems, len(groups) + len(problems))
    if not groups:
        raise UserError(f"all {len(identical)} pairs have identical responses; there is nothing to learn")
    return Preferences(ids, groups, np.array(desirable, np.bool_), np.array(margins, np.float32), len(identical))


def _make_group(row: PreferenceRow | LabelledRow, chat: Chat, max_tokens: int) -> Group:
    prompt = chat.prompt_ids(row.messages, row.tools)
    given = (
        {"response": row.response} if isinstance(row, LabelledRow) else {"chosen": row.chosen, "rejected": row.rejected}
    )
    replies = {name: _make_reply(row, turns, prompt, chat, name) for name, turns in given.items()}
    name, longest = max(((name, len(reply.ids)) for name, reply in replies.items()), key=lambda item: item[1])
    if len(prompt) + longest > max_tokens:
        raise UserError(f"prompt and {name} have {len(prompt) + longest} tokens, more than max_tokens = {max_tokens}")
    return Group(
        np.array(prompt, np.int32),
        [reply.ids for reply in replies.values()],
        [reply.learnt for reply in replies.values()],
    )


def _make_reply(
    row: PreferenceRow | LabelledRow, turns: Sequence[Message], prompt: Sequence[int], chat: Chat, name: str
) -> _Reply:
    """The tokens that follow the prompt up to the last that the assistant writes, and which of them it writes."""
    if not any(turn.content.strip() or turn.tool_calls for turn in turns if turn.role == "assistant"):
        raise UserError(f"{name} is empty")
    if len(turns) == 1 and not turns[0].tool_calls:
        ids = np.array(chat.response_ids(turns[0].content), np.int32)
        return _Reply(ids, np.ones(len(ids), np.bool_))
    whole = chat.conversation((*row.messages, *turns), row.tools)
    if whole.ids[: len(prompt)] != prompt:
        raise UserError(f"the chat template writes the prompt in another way when {name} follows it")
    stop = int(np.flatnonzero(whole.assistant_mask)[-1]) + 1
    here = slice(len(prompt), stop)
    return _Reply(np.array(whole.ids[here], np.int32), whole.assistant_mask[here])


def _says_nothing(group: Group) -> bool:
    """Whether it is a pair of equal responses."""
    first, *others = group.responses
    return any(np.array_equal(first, other) for other in others)
