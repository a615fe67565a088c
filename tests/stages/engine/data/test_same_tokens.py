"""Models that mean the same by a token id, and models that do not."""

import dataclasses
import json

import pytest
import tokenizers
from stage_trial import TINY

from stages.engine.data.same_tokens import check_same_tokens
from stages.engine.data.tokenizer import Tokenizer, load_tokenizer
from stages.errors import UserError


@pytest.fixture(scope="module")
def tiny() -> Tokenizer:
    return load_tokenizer(TINY)


def with_tokens(tokenizer: Tokenizer, swapped: tuple[str, ...], added: tuple[str, ...] = ()) -> Tokenizer:
    """The tokenizer with the ids of two tokens swapped, and more tokens after its own."""
    text = json.loads(tokenizer.backend.to_str())
    vocab = text["model"]["vocab"]
    if swapped:
        first, second = swapped
        vocab[first], vocab[second] = vocab[second], vocab[first]
    backend = tokenizers.Tokenizer.from_str(json.dumps(text))
    backend.add_tokens([*added])
    return dataclasses.replace(tokenizer, backend=backend, origin="another/model")


def test_the_same_tokens_and_more_of_them_are_the_same(tiny: Tokenizer) -> None:
    check_same_tokens(tiny, with_tokens(tiny, (), ("<more>",)), "reference")


def test_other_ids_are_refused_with_the_first_tokens_that_differ(tiny: Tokenizer) -> None:
    vocab = tiny.backend.get_vocab()
    first, second = sorted((token for token in vocab if token.isalpha()), key=lambda token: vocab[token])[:2]
    expected = (
        rf"input `reference`: another/model has another tokenizer than .*: 2 of {len(vocab)} tokens differ "
        rf"\('{first}' is {vocab[first]} and {vocab[second]}, '{second}' is {vocab[second]} and {vocab[first]}\)"
    )
    with pytest.raises(UserError, match=expected):
        check_same_tokens(tiny, with_tokens(tiny, (first, second)), "reference")


def test_tokens_that_the_other_lacks_are_refused(tiny: Tokenizer) -> None:
    with pytest.raises(UserError, match=r"1 of \d+ tokens differ \('<more>' is \d+ and unknown\)"):
        check_same_tokens(with_tokens(tiny, (), ("<more>",)), tiny, "teacher")
