"""Text in parts of which a special token is only words, whoever wrote it out there."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from stages.engine.data.tokenizer import Tokenizer

Place = tuple[int, int]
"""Where something begins and ends, in characters."""


class Encoded(NamedTuple):
    """Ids, and the place of each in the text."""

    ids: list[int]
    places: list[Place]


def encode(tokenizer: Tokenizer, text: str, literal: Sequence[Place]) -> Encoded:
    """Ids of a text.

    They are those of the whole text where no special token is written out in a literal part. Where one is, the text
    between the special tokens that count is tokenised with these parts as words: special tokens cut text anyway.

    Args:
        tokenizer: of the model.
        text: with the special tokens of a template.
        literal: parts that are not the template's own.
    """
    whole = tokenizer.backend.encode(text, add_special_tokens=False)
    found = Encoded(whole.ids, whole.offsets)
    special = [at for at, token in enumerate(found.ids) if token in tokenizer.special_ids]
    genuine = [at for at in special if not any(_overlap(found.places[at], place) for place in literal)]
    if len(genuine) == len(special):
        return found
    apart = Encoded([], [])
    for token, place in _cut(tokenizer, text, [(found.ids[at], found.places[at]) for at in genuine]):
        apart.ids.append(token)
        apart.places.append(place)
    return apart


def _cut(tokenizer: Tokenizer, text: str, genuine: Sequence[tuple[int, Place]]) -> Iterator[tuple[int, Place]]:
    done = 0
    for token, (start, stop) in genuine:
        yield from _words(tokenizer, text, (done, start))
        yield token, (start, stop)
        done = stop
    yield from _words(tokenizer, text, (done, len(text)))


def _words(tokenizer: Tokenizer, text: str, part: Place) -> Iterator[tuple[int, Place]]:
    encoding = tokenizer.literal_backend.encode(text[slice(*part)], add_special_tokens=False)
    for token, (start, stop) in zip(encoding.ids, encoding.offsets, strict=True):
        yield token, (part[0] + start, part[0] + stop)


def _overlap(one: Place, other: Place) -> bool:
    return one[0] < other[1] and one[1] > other[0]
