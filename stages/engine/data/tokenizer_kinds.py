"""Kinds of tokens, as SentencePiece and GGUF number them, and those of them that text may name."""

from collections.abc import Sequence

import tokenizers
from tokenizers import AddedToken, processors

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def mark_added_tokens(backend: tokenizers.Tokenizer, texts: Sequence[str], kinds: Sequence[int]) -> None:
    """Makes control tokens special, and user-defined ones text that is never split; ids stay as they are."""
    special, plain = [], []
    for text, kind in zip(texts, kinds, strict=True):
        if kind in (CONTROL, UNKNOWN):
            special.append(AddedToken(text, normalized=False, special=True))
        elif kind == USER_DEFINED:
            plain.append(AddedToken(text, normalized=False, special=False))
    # One call for each: the backend rebuilds its automaton with every call.
    backend.add_special_tokens(special)
    backend.add_tokens(plain)


def start_with(backend: tokenizers.Tokenizer, token: str, token_id: int) -> None:
    """Notes that the model was trained on sequences that begin with a token.

    Our own `Tokenizer.encode` adds nothing; other programs that read the written `tokenizer.json` do.
    """
    backend.post_processor = processors.TemplateProcessing(
        single=[token, "$A"], pair=[token, "$A", f"{token}:1", "$B:1"], special_tokens=[(token, token_id)]
    )
