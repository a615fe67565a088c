"""SentencePiece vocabularies on the backend that all tokenizers share: merges from scores, or a unigram model.

Source: Kudo and Richardson, SentencePiece (arXiv 1808.06226). Of two pairs that make the same piece the backend prefers
the one of the more frequent parts, where SentencePiece takes the leftmost; text in which that matters is rare.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import tokenizers
from tokenizers import Regex, decoders, models, normalizers

from stages.engine.data.tokenizer_kinds import BYTE, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, mark_added_tokens

SPACE = "▁"
"""What stands for a space within pieces."""

_SUPERFLUOUS_SPACES = r"\A +| +\z|(?<= ) +"


@dataclass(frozen=True)
class SentencePieces:
    """A vocabulary, and how text is changed before it is cut.

    Attributes:
        texts: of the pieces, by id.
        scores: the higher, the earlier a piece is merged; log-probabilities of a unigram model.
        kinds: of the pieces, by the numbers of `tokenizer_kinds`.
        is_unigram: a unigram model, and not one of byte-pair merges.
        add_dummy_prefix: text starts as if a space stood before it.
        remove_extra_whitespaces: spaces at the ends are dropped and runs of them become one.
        charsmap: SentencePiece's compiled table of replacements, empty for none.
    """

    texts: Sequence[str]
    scores: Sequence[float]
    kinds: Sequence[int]
    is_unigram: bool
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool
    charsmap: bytes


def sentencepiece_backend(pieces: SentencePieces) -> tokenizers.Tokenizer:
    """The backend that gives the ids of such a vocabulary.

    Raises:
        ValueError: no piece is of kind unknown.
    """
    # A user-defined piece is found in the text as it is written, before spaces are replaced.
    texts = [
        text.replace(SPACE, " ") if kind == USER_DEFINED else text
        for text, kind in zip(pieces.texts, pieces.kinds, strict=True)
    ]
    backend = tokenizers.Tokenizer(_unigram(pieces, texts) if pieces.is_unigram else _byte_pair(pieces, texts))
    backend.normalizer = normalizers.Sequence(list(_normalizers(pieces)))
    backend.decoder = decoders.Sequence(list(_decoders(pieces)))
    mark_added_tokens(backend, texts, pieces.kinds)
    return backend


def _unigram(pieces: SentencePieces, texts: Sequence[str]) -> models.Unigram:
    return models.Unigram(
        vocab=list(zip(texts, pieces.scores, strict=True)),
        unk_id=pieces.kinds.index(UNKNOWN),
        byte_fallback=BYTE in pieces.kinds,
    )


def _byte_pair(pieces: SentencePieces, texts: Sequence[str]) -> models.BPE:
    ids = {text: token_id for token_id, text in enumerate(texts)}
    by_rank = sorted(
        (token_id for token_id, kind in enumerate(pieces.kinds) if kind in (NORMAL, UNUSED)),
        key=lambda token_id: -pieces.scores[token_id],
    )
    return models.BPE(
        vocab=ids,
        merges=_merges([texts[token_id] for token_id in by_rank], ids),
        unk_token=texts[pieces.kinds.index(UNKNOWN)],
        fuse_unk=True,
        byte_fallback=BYTE in pieces.kinds,
    )


def _merges(texts: Sequence[str], ids: Mapping[str, int]) -> list[tuple[str, str]]:
    """The pairs of known pieces that make each text, those of early pieces first."""
    merges: list[tuple[str, str]] = []
    for text in texts:
        pairs = []
        for at in range(1, len(text)):
            left, right = text[:at], text[at:]
            if left in ids and right in ids:
                pairs.append((left, right))
        if len(pairs) > 1:
            pairs.sort(key=lambda pair: (ids[pair[0]], ids[pair[1]]))
        merges += pairs
    return merges


def _normalizers(pieces: SentencePieces) -> Iterator[normalizers.Normalizer]:
    if pieces.charsmap:
        yield normalizers.Precompiled(pieces.charsmap)
    if pieces.remove_extra_whitespaces:
        yield normalizers.Replace(Regex(_SUPERFLUOUS_SPACES), "")
    if pieces.add_dummy_prefix:
        yield normalizers.Prepend(SPACE)
    yield normalizers.Replace(" ", SPACE)


def _decoders(pieces: SentencePieces) -> Iterator[decoders.Decoder]:
    yield decoders.Replace(SPACE, " ")
    yield decoders.ByteFallback()
    yield decoders.Fuse()
    if pieces.add_dummy_prefix:
        yield decoders.Strip(" ", 1, 0)
