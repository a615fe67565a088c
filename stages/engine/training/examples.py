"""A dataset's rows as examples that a model learns from."""

import logging
from pathlib import Path

from stages.engine.data.examples import (
    Examples,
    Learn,
    TooLong,
    conversation_rows,
    fit_lengths,
    problem_rows,
    text_rows,
)
from stages.engine.data.records import ChatRow, Row, TextRow, open_dataset, read_dataset
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
    record = open_dataset(folder, Row, ChatRow, TextRow).record
    if record is TextRow:
        rows = text_rows(open_dataset(folder, TextRow), opened.tokenizer)
    elif record is ChatRow:
        rows = conversation_rows(open_dataset(folder, ChatRow), opened.chat, learn)
    else:
        rows = problem_rows(read_dataset(folder), opened.chat)
    found = fit_lengths(rows, max_tokens, too_long)
    if found.num_dropped or found.num_truncated:
        logger.warning(
            "of %d rows %d are left out and %d cut after max_tokens = %d",
            len(found.groups) + found.num_dropped,
            found.num_dropped,
            found.num_truncated,
            max_tokens,
        )
    return found
