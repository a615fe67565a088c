"""A dataset's rows as examples that a model learns from."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

from stages.engine.data.batching import Group
from stages.engine.data.examples import (
    Examples,
    Learn,
    RefusedRow,
    TokenRow,
    TooLong,
    conversation_rows,
    fit_lengths,
    problem_rows,
    text_rows,
)
from stages.engine.data.records import ChatRow, Row, TextRow, open_dataset, read_dataset
from stages.engine.data.tokenizer import Tokenizer
from stages.engine.models.opened import OpenedModel

logger = logging.getLogger(__name__)


def read_examples(
    folder: Path, opened: OpenedModel, max_tokens: int, learn: Learn = "all_turns", too_long: TooLong = "error"
) -> Examples:
    """Problems with their responses, conversations or texts, whichever the dataset has.

    Args:
        folder: of the dataset.
        opened: the model whose tokens they become.
        max_tokens: longest example.
        learn: which turns of a conversation are learnt.
        too_long: what becomes of longer examples.

    Raises:
        UserError: it has other rows, or some that cannot be used, or none is left.
    """
    found = fit_lengths(token_rows(folder, opened, learn), max_tokens, too_long)
    if found.num_dropped or found.num_truncated:
        logger.warning(
            "of %d rows %d are left out and %d cut after max_tokens = %d",
            len(found.groups) + found.num_dropped,
            found.num_dropped,
            found.num_truncated,
            max_tokens,
        )
    return found


def token_rows(folder: Path, opened: OpenedModel, learn: Learn = "all_turns") -> Iterator[TokenRow | RefusedRow]:
    """The same rows in token ids, whatever their lengths.

    Raises:
        UserError: the dataset has other rows.
    """
    record = open_dataset(folder, Row, ChatRow, TextRow).record
    if record is TextRow:
        return text_rows(open_dataset(folder, TextRow), opened.tokenizer)
    if record is ChatRow:
        return conversation_rows(open_dataset(folder, ChatRow), opened.chat, learn)
    return problem_rows(read_dataset(folder), opened.chat)


def show_example(row: int, example: Group, tokenizer: Tokenizer) -> str:
    """An example in words, as one line of JSON."""
    prompt, (response,), _ = example
    texts = {"prompt": tokenizer.decode(prompt), "response": tokenizer.decode(response)}
    return json.dumps({"row": row, **texts}, ensure_ascii=False)
