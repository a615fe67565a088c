"""Whether two models mean the same by a token id, so that one can score what is written in the ids of the other."""

from stages.engine.data.tokenizer import Tokenizer
from stages.errors import UserError

_NAMED = 3
"""Tokens that an error shows."""


def check_same_tokens(tokenizer: Tokenizer, other: Tokenizer, name: str) -> None:
    """Checks that another model knows every token by the same id; it may have more of them.

    Args:
        tokenizer: in whose ids the data are.
        other: of the model that shall read them.
        name: of the input that this model is.

    Raises:
        UserError: ids differ.
    """
    ours, theirs = tokenizer.backend.get_vocab(), other.backend.get_vocab()
    different = sorted((index, token) for token, index in ours.items() if theirs.get(token) != index)
    if different:
        shown = ", ".join(
            f"{token!r} is {index} and {theirs.get(token, 'unknown')}" for index, token in different[:_NAMED]
        )
        raise UserError(
            f"input `{name}`: {other.origin} has another tokenizer than {tokenizer.origin}: {len(different)} of "
            f"{len(ours)} tokens differ ({shown}); give a model with the same one"
        )
