"""The real model's tokenizer, read from its GGUF metadata."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.engine.data.gguf import GgufValue
from stages.engine.data.gguf_tokenizer import tokenizer_from_gguf
from stages.engine.data.sentencepiece import sentencepiece_backend
from stages.engine.data.sentencepiece_file import read_sentencepiece
from stages.engine.data.tokenizer import Tokenizer
from stages.errors import UserError


def test_special_tokens_are_single_ids(smollm2: Tokenizer) -> None:
    assert smollm2.encode("<|im_start|>user\n<|im_end|><|endoftext|>") == [1, 4093, 198, 2, 0]
    assert (smollm2.eos_ids, smollm2.eos_id) == (frozenset({2}), 2)
    assert (smollm2.bos_token, smollm2.eos_token) == ("<|im_start|>", "<|im_end|>")


def test_every_digit_is_a_token_of_its_own(smollm2: Tokenizer) -> None:
    assert [smollm2.decode([token]) for token in smollm2.encode("12 + 345")] == [*"12", " +", " ", *"345"]
    assert smollm2.encode("0123456789") == list(range(32, 42))


def test_words_are_merged_by_rank(smollm2: Tokenizer, gguf_metadata: Mapping[str, GgufValue]) -> None:
    merges, tokens = gguf_metadata["tokenizer.ggml.merges"], gguf_metadata["tokenizer.ggml.tokens"]
    assert isinstance(merges, list)
    assert isinstance(tokens, list)
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    ranks = {merge: rank for rank, merge in enumerate(merges)}
    for word in ("Ġassistant", "Ġarithmetic", "problem", "Ġhelpful", "Ġunbelievable", "xylophone"):
        parts = list(word)
        while pairs := [(ranks[f"{a} {b}"], i) for i, (a, b) in enumerate(pairwise(parts)) if f"{a} {b}" in ranks]:
            _, at = min(pairs)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        assert smollm2.encode(word.replace("Ġ", " ")) == [ids[part] for part in parts]


@settings(max_examples=200)
@given(st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cc", "Cs"])))  # it lacks some bytes
def test_decoding_gives_the_encoded_text_back(smollm2: Tokenizer, text: str) -> None:
    assert smollm2.decode(smollm2.encode(text), skip_special=False) == text


def test_special_tokens_are_left_out_of_decoded_text_unless_asked_for(smollm2: Tokenizer) -> None:
    assert smollm2.decode([39, 2]) == "7"
    assert smollm2.decode([39, 2], skip_special=False) == "7<|im_end|>"


def test_user_defined_tokens_are_single_ids_and_stay_in_decoded_text(gguf_metadata: Mapping[str, GgufValue]) -> None:
    types = gguf_metadata["tokenizer.ggml.token_type"]
    assert isinstance(types, list)
    changed = [4 if token_id == 3 else int(kind) for token_id, kind in enumerate(types)]
    tokenizer = tokenizer_from_gguf({**gguf_metadata, "tokenizer.ggml.token_type": changed}, "model.gguf")
    assert tokenizer.encode("a<repo_name>") == [81, 3]
    assert tokenizer.decode([81, 3]) == "a<repo_name>"


def test_an_end_of_turn_token_ends_a_response_too(gguf_metadata: Mapping[str, GgufValue]) -> None:
    tokenizer = tokenizer_from_gguf({**gguf_metadata, "tokenizer.ggml.eot_token_id": 0}, "model.gguf")
    assert tokenizer.eos_ids == {0, 2}
    assert tokenizer.eos_id == 2


@pytest.fixture
def scored() -> dict[str, GgufValue]:
    """Metadata of a vocabulary with scores, as converters make it from a SentencePiece model."""
    pieces = read_sentencepiece(Path(__file__).parent / "sentencepiece" / "bpe.model").pieces
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": list(pieces.texts),
        "tokenizer.ggml.scores": list(pieces.scores),
        "tokenizer.ggml.token_type": list(pieces.kinds),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }


def test_scores_give_the_ids_of_the_model_that_they_are_from(scored: dict[str, GgufValue]) -> None:
    pieces = read_sentencepiece(Path(__file__).parent / "sentencepiece" / "bpe.model").pieces
    tokenizer, backend = tokenizer_from_gguf(scored, "x.gguf"), sentencepiece_backend(pieces)
    for text in ("", " the quick", "naïve café\t12", "漢字 😁", "a<sep>b[INST]"):
        assert tokenizer.encode(text) == backend.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(tokenizer.encode(text), skip_special=False) == text.replace("b[", " b[")
    assert tokenizer.backend.encode("the").ids == [1, *tokenizer.encode("the")]


def test_text_begins_without_a_space_where_the_file_says_so(scored: dict[str, GgufValue]) -> None:
    tokenizer = tokenizer_from_gguf({**scored, "tokenizer.ggml.add_space_prefix": False}, "x.gguf")
    assert tokenizer.backend.encode("the", add_special_tokens=False).tokens[0] != "▁the"
    assert tokenizer.decode(tokenizer.encode(" the")) == " the"


def test_an_unknown_token_that_the_file_calls_a_control_token_is_found_by_its_id(scored: dict[str, GgufValue]) -> None:
    kinds = scored["tokenizer.ggml.token_type"]
    assert isinstance(kinds, list)
    tokenizer = tokenizer_from_gguf({**scored, "tokenizer.ggml.token_type": [3, *(int(k) for k in kinds[1:])]}, "x")
    assert tokenizer.encode("the fox") == tokenizer_from_gguf(scored, "x").encode("the fox")


@pytest.mark.parametrize(("eot", "ends"), [(None, {2, 3}), (4, {2, 4})])
def test_a_known_token_ends_a_turn_only_if_the_file_names_none(
    scored: dict[str, GgufValue], eot: int | None, ends: set[int]
) -> None:
    tokens = scored["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    scored["tokenizer.ggml.tokens"] = ["<end_of_turn>" if token == "[INST]" else str(token) for token in tokens]
    if eot is not None:
        scored["tokenizer.ggml.eot_token_id"] = eot
    assert tokenizer_from_gguf(scored, "x.gguf").eos_ids == ends


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer.ggml.pre": "qwen35"}, "model.gguf: tokenizer.ggml.pre is 'qwen35'.*known are gpt-2, smollm,"),
        ({"tokenizer.ggml.model": "t5"}, "tokenizer.ggml.model is 't5', supported are gpt2 and llama"),
        ({"tokenizer.ggml.model": "llama"}, "tokenizer.ggml.scores is missing"),
        ({"tokenizer.ggml.pre": 3}, "tokenizer.ggml.pre is 3, expected text"),
        ({"tokenizer.ggml.merges": "a b"}, "tokenizer.ggml.merges is 'a b', expected a list"),
        ({"tokenizer.ggml.merges": ["a b", "Ġ ⁂"]}, "merges joins 'Ġ' and '⁂'; tokenizer.ggml.tokens lacks"),
        ({"tokenizer.ggml.token_type": [1, 1]}, "token_type has 2 entries for 49152 tokens"),
        ({"tokenizer.ggml.token_type": ["x"] * 49152}, "token_type is a list of texts, expected one of numbers"),
        ({"tokenizer.ggml.tokens": [1] * 49152}, "tokens is a list of numbers, expected one of texts"),
        ({"tokenizer.ggml.bos_token_id": 49152}, "bos_token_id is 49152, expected one of the vocabulary's 49152 ids"),
        ({"tokenizer.ggml.padding_token_id": -1}, "padding_token_id is -1, expected one of the vocabulary's 49152 ids"),
        ({"tokenizer.ggml.add_bos_token": 1}, "add_bos_token is 1, expected true or false"),
        ({"tokenizer.ggml.eos_token_id": "x"}, "eos_token_id is 'x', expected one of the vocabulary's 49152 ids"),
    ],
)
def test_what_cannot_be_read_is_named(
    gguf_metadata: Mapping[str, GgufValue], changes: dict[str, GgufValue], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        tokenizer_from_gguf({**gguf_metadata, **changes}, "model.gguf")
