"""Reads SentencePiece's `tokenizer.model`: a protocol buffer, of which a dozen fields matter here.

Format: `sentencepiece_model.proto` of the SentencePiece project (proto2), in the protocol buffer wire format. The
project's own library would give ids but not the backend that everything here is built on, and its description of the
file needs a second library; the wire format is four kinds of fields.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from stages.engine.data.sentencepiece import SentencePieces
from stages.engine.data.tokenizer_kinds import NORMAL, UNKNOWN
from stages.errors import UserError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MODEL_TYPES = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}

_Fields = Mapping[int, int | bytes]


@dataclass(frozen=True)
class SentencePieceFile:
    """What the file holds.

    Attributes:
        pieces: the vocabulary.
        bos_id: of the token that starts a sequence, none for a model without one.
        eos_id: of the token that ends one, none for a model without one.
    """

    pieces: SentencePieces
    bos_id: int | None
    eos_id: int | None


def read_sentencepiece(path: Path) -> SentencePieceFile:
    """Reads the file.

    Raises:
        UserError: it is cut off, no SentencePiece model, or one of a type that cannot be expressed here.
    """
    try:
        return _read_model(path.read_bytes())
    except (OSError, ValueError, IndexError, struct.error) as error:
        raise UserError(f"{path}: not a readable SentencePiece model: {error}") from error


def _read_model(data: bytes) -> SentencePieceFile:
    pieces, sections = [], {2: {}, 3: {}}
    for number, value in _read_fields(data):
        if number == 1:
            pieces.append(dict(_read_fields(_bytes(value))))
        elif number in sections:
            sections[number] = dict(_read_fields(_bytes(value)))
    trainer, normalizer = sections[2], sections[3]
    _check_type(trainer, normalizer)
    kinds = [_int(piece, 3, NORMAL) for piece in pieces]
    if UNKNOWN not in kinds:
        raise ValueError(f"none of its {len(kinds)} pieces is the unknown one")
    vocabulary = SentencePieces(
        texts=[_bytes(piece.get(1, 0)).decode("utf-8") for piece in pieces],
        scores=[struct.unpack("<f", _bytes(piece.get(2, bytes(4))))[0] for piece in pieces],
        kinds=kinds,
        is_unigram=_int(trainer, 3, 1) == 1,
        add_dummy_prefix=bool(_int(normalizer, 3, 1)),
        remove_extra_whitespaces=bool(_int(normalizer, 4, 1)),
        charsmap=_charsmap(_bytes(normalizer.get(2, b""))),
    )
    bos_id, eos_id = (_id(trainer, number, default, len(kinds)) for number, default in ((41, 1), (42, 2)))
    return SentencePieceFile(vocabulary, bos_id, eos_id)


def _charsmap(table: bytes) -> bytes:
    """The table of replacements, checked: the bytes of a tree behind their count, then text."""
    if table:
        (tree_bytes,) = struct.unpack_from("<I", table)
        if tree_bytes % 4 or tree_bytes > len(table) - 4:
            raise ValueError("its table of replacements is damaged")
        table[4 + tree_bytes :].decode("utf-8")
    return table


def _check_type(trainer: _Fields, normalizer: _Fields) -> None:
    model_type = _int(trainer, 3, 1)
    if model_type not in (1, 2):
        raise ValueError(f"its type is {_MODEL_TYPES.get(model_type, model_type)}, supported are unigram and bpe")
    if _int(trainer, 24, 0):
        raise ValueError("it treats a space as the end of a word (treat_whitespace_as_suffix), which is not supported")
    if not _int(normalizer, 5, 1):
        raise ValueError("it keeps spaces as they are (escape_whitespaces: false), which is not supported")


def _read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and values, in the order of the file; a number of fixed size comes as its bytes."""
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _read_varint(data, at)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            size, at = _read_varint(data, at)
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"byte {at} has no field that the format knows")
        if at + size > len(data):
            raise ValueError(f"it ends {at + size - len(data)} bytes too early")
        yield tag >> 3, data[at : at + size]
        at += size


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, lowest first, and the place after it."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError(f"a number before byte {at} is longer than it can be")


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number stands where text is expected")
    return value


def _int(fields: _Fields, number: int, default: int) -> int:
    value = fields.get(number, default)
    if isinstance(value, bytes):
        raise ValueError("text stands where a number is expected")
    return value


def _id(fields: _Fields, number: int, default: int, num_pieces: int) -> int | None:
    """An id; a model without the token has -1, which is written as a number beyond all."""
    token_id = _int(fields, number, default)
    return token_id if token_id < num_pieces else None
