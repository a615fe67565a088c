"""The tokenizer that a GGUF file carries in its metadata."""

from collections.abc import Mapping, Sequence

import tokenizers
from tokenizers import decoders, models

from stages.engine.data.gguf import GgufValue
from stages.engine.data.sentencepiece import SentencePieces, sentencepiece_backend
from stages.engine.data.tokenizer import Tokenizer
from stages.engine.data.tokenizer_kinds import CONTROL, UNKNOWN, mark_added_tokens, start_with
from stages.engine.data.tokenizer_splits import SPLITS
from stages.errors import UserError

_TURN_ENDS = ("<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<|end|>")
"""Control tokens that end a turn, for files that do not say which one does."""


def tokenizer_from_gguf(metadata: Mapping[str, GgufValue], origin: str) -> Tokenizer:
    """The tokenizer that `tokenizer.*` keys of the metadata describe.

    Args:
        metadata: the file's keys and values.
        origin: the file, for messages.

    Raises:
        UserError: the file has no tokenizer, or one of a kind that is not known here.
    """
    fields = _Fields(metadata, origin)
    kind = fields.text("tokenizer.ggml.model")
    if kind not in ("gpt2", "llama"):
        raise UserError(f"{origin}: tokenizer.ggml.model is {kind!r}, supported are gpt2 and llama")
    tokens = fields.texts("tokenizer.ggml.tokens")
    kinds = [int(token_type) for token_type in fields.numbers("tokenizer.ggml.token_type", len(tokens))]
    eos_id, bos_id, pad_id = (
        fields.token_id(f"tokenizer.ggml.{name}_token_id", tokens) for name in ("eos", "bos", "padding")
    )
    if eos_id is None:
        raise UserError(f"{origin}: tokenizer.ggml.eos_token_id is missing")
    if kind == "llama":
        backend, starts_with_bos = _sentencepiece(fields, tokens, kinds), True
    else:
        backend, starts_with_bos = _byte_level_bpe(fields, tokens, kinds)
    if bos_id is not None and fields.flag("tokenizer.ggml.add_bos_token", default=starts_with_bos):
        start_with(backend, tokens[bos_id], bos_id)
    template = metadata.get("tokenizer.chat_template")
    return Tokenizer(
        backend=backend,
        eos_ids=frozenset({eos_id, *_turn_ends(fields, tokens, kinds)}),
        eos_id=eos_id,
        bos_token="" if bos_id is None else tokens[bos_id],
        pad_token="" if pad_id is None else tokens[pad_id],
        chat_template=template if isinstance(template, str) else None,
        origin=origin,
    )


class _Fields:
    """Typed access to the metadata, with errors that name the file and the key."""

    def __init__(self, metadata: Mapping[str, GgufValue], origin: str) -> None:
        self._metadata = metadata
        self.origin = origin

    def text(self, key: str) -> str:
        value = self._required(key)
        if not isinstance(value, str):
            raise UserError(f"{self.origin}: {key} is {value!r}, expected text")
        return value

    def texts(self, key: str) -> list[str]:
        items = self._items(key)
        texts = [item for item in items if isinstance(item, str)]
        if len(texts) < len(items):
            raise UserError(f"{self.origin}: {key} is a list of numbers, expected one of texts")
        return texts

    def numbers(self, key: str, num: int) -> list[int | float]:
        items = self._items(key)
        numbers = [item for item in items if not isinstance(item, str)]
        if len(numbers) < len(items):
            raise UserError(f"{self.origin}: {key} is a list of texts, expected one of numbers")
        if len(numbers) != num:
            raise UserError(f"{self.origin}: {key} has {len(numbers)} entries for {num} tokens")
        return numbers

    def token_id(self, key: str, tokens: Sequence[str]) -> int | None:
        value = self._metadata.get(key)
        if value is None:
            return None
        if not isinstance(value, int) or not 0 <= value < len(tokens):
            raise UserError(f"{self.origin}: {key} is {value!r}, expected one of the vocabulary's {len(tokens)} ids")
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        value = self._metadata.get(key, default)
        if not isinstance(value, bool):
            raise UserError(f"{self.origin}: {key} is {value!r}, expected true or false")
        return value

    def _items(self, key: str) -> Sequence[str | int | float | bool]:
        value = self._required(key)
        if isinstance(value, str | int | float):
            raise UserError(f"{self.origin}: {key} is {value!r}, expected a list")
        return value

    def _required(self, key: str) -> GgufValue:
        value = self._metadata.get(key)
        if value is None:
            raise UserError(f"{self.origin}: {key} is missing; convert the model again, with a newer converter")
        return value


def _sentencepiece(fields: _Fields, tokens: Sequence[str], kinds: Sequence[int]) -> tokenizers.Tokenizer:
    if UNKNOWN not in kinds:
        # Some converters mark it as a control token.
        unknown_id = fields.token_id("tokenizer.ggml.unknown_token_id", tokens) or 0
        kinds = [UNKNOWN if token_id == unknown_id else kind for token_id, kind in enumerate(kinds)]
    pieces = SentencePieces(
        texts=tokens,
        scores=[float(score) for score in fields.numbers("tokenizer.ggml.scores", len(tokens))],
        kinds=kinds,
        is_unigram=False,
        add_dummy_prefix=fields.flag("tokenizer.ggml.add_space_prefix", default=True),
        remove_extra_whitespaces=fields.flag("tokenizer.ggml.remove_extra_whitespaces", default=False),
        charsmap=b"",
    )
    return sentencepiece_backend(pieces)


def _byte_level_bpe(fields: _Fields, tokens: Sequence[str], kinds: Sequence[int]) -> tuple[tokenizers.Tokenizer, bool]:
    """The backend, and whether such models start a sequence with the start token."""
    pre = fields.text("tokenizer.ggml.pre")
    if pre not in SPLITS:
        raise UserError(
            f"{fields.origin}: tokenizer.ggml.pre is {pre!r}, which is not supported; known are {', '.join(SPLITS)}. "
            "The model's folder with tokenizer.json and safetensors does without this name"
        )
    split = SPLITS[pre]
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    merges = _merges(fields, vocabulary)
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=split.whole_words))
    backend.normalizer = split.normalizer()
    backend.pre_tokenizer = split.pre_tokenizer()
    backend.decoder = decoders.ByteLevel()
    mark_added_tokens(backend, tokens, kinds)
    return backend, split.starts_with_bos


def _merges(fields: _Fields, vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    merges = []
    for merge in fields.texts("tokenizer.ggml.merges"):
        left, _, right = merge.partition(" ")
        if left not in vocabulary or right not in vocabulary or left + right not in vocabulary:
            raise UserError(
                f"{fields.origin}: tokenizer.ggml.merges joins {left!r} and {right!r}; tokenizer.ggml.tokens lacks one "
                "of them or what they make"
            )
        merges.append((left, right))
    return merges


def _turn_ends(fields: _Fields, tokens: Sequence[str], kinds: Sequence[int]) -> list[int]:
    eot_id, eom_id = (fields.token_id(f"tokenizer.ggml.{name}_token_id", tokens) for name in ("eot", "eom"))
    named = [token_id for token_id in (eot_id, eom_id) if token_id is not None]
    if eot_id is not None:
        return named
    return [*named, *(i for i, token in enumerate(tokens) if kinds[i] == CONTROL and token in _TURN_ENDS)]
