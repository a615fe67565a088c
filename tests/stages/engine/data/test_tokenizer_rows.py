"""Every id that text can give has a row of the embedding."""

import dataclasses
from pathlib import Path

import pytest

from stages.engine.data.tokenizer import load_tokenizer
from stages.engine.data.tokenizer_rows import fit_vocabulary
from stages.errors import UserError


def test_a_vocabulary_that_fits_stays_as_it_is(folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    assert fit_vocabulary(tokenizer, 261) is tokenizer
    assert fit_vocabulary(tokenizer, 320) is tokenizer  # rows to spare


def test_an_added_token_without_a_row_becomes_text(folder: Path) -> None:
    tokenizer = dataclasses.replace(load_tokenizer(folder), eos_ids=frozenset({257}))
    fitted = fit_vocabulary(tokenizer, 260)
    text = "<|im_start|>a<|im_end|>"
    assert tokenizer.encode(text)[-1] == 260
    assert fitted.encode(text)[0] == 259
    assert max(fitted.encode(text)) < 260
    assert fitted.decode(fitted.encode(text), skip_special=False) == text


@pytest.mark.parametrize(
    ("vocab_size", "message"),
    [
        (260, r"token '<\|im_end\|>' has the id 260, but the model's embedding has 260 rows; so it is with 1 tokens"),
        (257, "token '</s>' has the id 257"),
        (256, "token '<s>' has the id 256"),
        (200, "has the id 200, but the model's embedding has 200 rows; so it is with 59 tokens"),
    ],
)
def test_a_needed_token_without_a_row_is_named(folder: Path, vocab_size: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        fit_vocabulary(load_tokenizer(folder), vocab_size)
