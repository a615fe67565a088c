"""The tokenizer that a GGUF file carries in its metadata."""

from collections.abc import Mapping, Sequence

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from stages.engine.data.gguf import GgufValue
from stages.engine.data.tokenizer import Tokenizer
from stages.errors import UserError

_CONTROL, _USER_DEFINED = 3, 4
"""Token types: special, and text that is never split."""


def _byte_level() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _digits_then_byte_level() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _byte_level()])


_PRE_TOKENIZERS = {"gpt-2": _byte_level, "smollm": _digits_then_byte_level}
"""How text is cut before merging, by `tokenizer.ggml.pre`."""


def tokenizer_from_gguf(metadata: Mapping[str, GgufValue], origin: str) -> Tokenizer:
    """The tokenizer that `tokenizer.*` keys of the metadata describe.

    Args:
        metadata: the file's keys and values.
        origin: the file, for messages.

    Raises:
        UserError: the file has no tokenizer, or one of a kind that is not known here.
    """
    fields = _Fields(metadata, origin)
    kind, pre = fields.text("tokenizer.ggml.model"), fields.text("tokenizer.ggml.pre")
    if kind != "gpt2" or pre not in _PRE_TOKENIZERS:
        known = ", ".join(f"gpt2 with {name}" for name in _PRE_TOKENIZERS)
        raise UserError(f"{origin}: tokenizer {kind} with {pre} is not supported; supported are {known}")
    eos_id = fields.token_id("tokenizer.ggml.eos_token_id")
    if eos_id is None:
        raise UserError(f"{origin}: tokenizer.ggml.eos_token_id is missing")
    eot_id, bos_id = (fields.token_id(f"tokenizer.ggml.{name}_token_id") for name in ("eot", "bos"))
    template = metadata.get("tokenizer.chat_template")
    backend = _byte_level_bpe(fields, pre)
    return Tokenizer(
        backend=backend,
        eos_ids=frozenset({eos_id} if eot_id is None else {eos_id, eot_id}),
        eos_id=eos_id,
        bos_token="" if bos_id is None else backend.id_to_token(bos_id) or "",
        chat_template=template if isinstance(template, str) else None,
        origin=origin,
    )


class _Fields:
    """Typed access to the metadata, with errors that name the file and the key."""

    def __init__(self, metadata: Mapping[str, GgufValue], origin: str) -> None:
        self._metadata = metadata
        self._origin = origin

    def text(self, key: str) -> str:
        value = self._metadata.get(key)
        if not isinstance(value, str):
            raise UserError(f"{self._origin}: {key} is {value!r}, expected text")
        return value

    def items(self, key: str) -> Sequence[str | int | float | bool]:
        value = self._metadata.get(key)
        if value is None or isinstance(value, str | int | float):
            raise UserError(f"{self._origin}: {key} is {value!r}, expected a list")
        return value

    def token_id(self, key: str) -> int | None:
        value = self._metadata.get(key)
        return value if isinstance(value, int) else None


def _byte_level_bpe(fields: _Fields, pre: str) -> tokenizers.Tokenizer:
    tokens = [str(token) for token in fields.items("tokenizer.ggml.tokens")]
    merges = [_split_merge(str(merge)) for merge in fields.items("tokenizer.ggml.merges")]
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    backend.pre_tokenizer = _PRE_TOKENIZERS[pre]()
    backend.decoder = decoders.ByteLevel()
    for token, token_type in zip(tokens, fields.items("tokenizer.ggml.token_type"), strict=True):
        if token_type in (_CONTROL, _USER_DEFINED):
            special = token_type == _CONTROL
            added = AddedToken(token, normalized=False, special=special)
            (backend.add_special_tokens if special else backend.add_tokens)([added])
    return backend


def _split_merge(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    return left, right
