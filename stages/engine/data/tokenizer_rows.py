"""Whether the model has a row of its embedding for every token id."""

import json
from dataclasses import replace

import tokenizers

from stages.engine.data.tokenizer import Tokenizer
from stages.errors import UserError


def fit_vocabulary(tokenizer: Tokenizer, vocab_size: int) -> Tokenizer:
    """The tokenizer without added tokens that the model has no row for.

    Published folders have such tokens: Gemma 3's placeholder for images, which its text models lack. Written out in a
    text, it is text. Rows beyond the vocabulary are common, too, and do no harm.

    Args:
        tokenizer: of the model's folder or file.
        vocab_size: rows of the model's embedding.

    Raises:
        UserError: a token that is part of the vocabulary proper, starts a sequence or ends one has no row.
    """
    backend = tokenizer.backend
    beyond = {token_id for token_id in backend.get_vocab(with_added_tokens=True).values() if token_id >= vocab_size}
    if not beyond:
        return tokenizer
    needed = {*backend.get_vocab(with_added_tokens=False).values(), *tokenizer.eos_ids}
    needed.add(backend.token_to_id(tokenizer.bos_token) or 0)
    if missing := sorted(beyond & needed):
        raise UserError(
            f"{tokenizer.origin}: token {backend.id_to_token(missing[0])!r} has the id {missing[0]}, but the model's "
            f"embedding has {vocab_size} rows; so it is with {len(missing)} tokens: these are files of two models"
        )
    content = json.loads(backend.to_str())
    content["added_tokens"] = [token for token in content["added_tokens"] if token["id"] < vocab_size]
    return replace(tokenizer, backend=tokenizers.Tokenizer.from_buffer(json.dumps(content).encode()))
