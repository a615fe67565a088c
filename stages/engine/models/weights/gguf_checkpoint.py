"""A GGUF file as a checkpoint of its family."""

from collections.abc import Iterable, Iterator

import numpy as np
from jaxtyping import Float

from stages.engine.data.ggml_types import GGML_TYPES
from stages.engine.data.gguf import GgufFile
from stages.engine.models.families.catalog import FAMILIES, family_of_gguf
from stages.engine.models.families.family import GgufFacts, WeightName
from stages.engine.models.families.fields import Fields
from stages.engine.models.weights.checkpoint import Checkpoint, Piece, make_pieces, weight_names
from stages.engine.models.weights.ggml_blocks import DECODERS
from stages.engine.models.weights.gguf import read_rows, read_tensor
from stages.errors import UserError

ROPE_FACTORS, EMBEDDING, OUTPUT = "rope_freqs.weight", "token_embd.weight", "output.weight"


def gguf_checkpoint(file: GgufFile) -> Checkpoint:
    """What an open file holds.

    Raises:
        UserError: it is of no known family, or its metadata are not understood.
    """
    if (count := file.metadata.get("split.count", 0)) not in (0, 1):
        raise UserError(f"{file.path}: one of {count} parts of a model; join them, as with `llama-gguf-split --merge`")
    kind = str(file.metadata.get("general.architecture"))
    family = family_of_gguf(kind)
    if family is None:
        known = ", ".join(each.gguf_name for each in FAMILIES.values())
        raise UserError(f"{file.path}: GGUF architecture {kind!r} is not supported; supported are {known}")
    try:
        arch = family.from_gguf(Fields(file.metadata, f"{kind}."), _facts(file))
    except ValueError as error:
        raise UserError(f"{file.path}: unusable GGUF metadata: {error}") from error
    weights = weight_names(family, arch)
    pieces = {weight.path: make_pieces(weight.path, weight.gguf, arch) for weight in weights}
    forms = {piece.name: weight for weight in weights for piece in pieces[weight.path]}

    def read(piece: Piece, rows: slice, out: np.ndarray) -> None:
        _read(file, forms[piece.name], piece, rows, out, arch.head_size)

    shapes = {name: tensor.shape for name, tensor in file.tensors.items() if name != ROPE_FACTORS}
    return Checkpoint(file.path, family, arch, shapes, pieces, read, list(_wrong_types(file, forms)))


def _facts(file: GgufFile) -> GgufFacts:
    if EMBEDDING not in file.tensors:
        raise ValueError(f"the tensor {EMBEDDING} is missing")
    factors = read_tensor(file, ROPE_FACTORS) if ROPE_FACTORS in file.tensors else None
    return GgufFacts(file.tensors[EMBEDDING].shape[0], OUTPUT not in file.tensors, factors)


def _wrong_types(file: GgufFile, wanted: Iterable[str]) -> Iterator[str]:
    for name in wanted:
        number = file.tensors[name].quantization if name in file.tensors else 0
        kind = GGML_TYPES[number].name if number in GGML_TYPES else str(number)
        if kind not in DECODERS:
            yield f"{name} is of type {kind}; supported are {', '.join(DECODERS)}: convert the file to one"


def _read(file: GgufFile, weight: WeightName, piece: Piece, rows: slice, out: np.ndarray, head_size: int) -> None:
    if piece.part is not None:
        out[...] = read_rows(file, piece.name, slice(piece.part, piece.part + 1))[0, rows]
    elif weight.gguf_form == "interleaved":
        out[...] = _read_heads(file, piece.name, rows, head_size)
    elif weight.gguf_form == "plus_one":
        out[...] = read_rows(file, piece.name, rows) - 1
    else:
        read_rows(file, piece.name, rows, out)


def _read_heads(file: GgufFile, name: str, rows: slice, head_size: int) -> Float[np.ndarray, "rows in"]:
    """Rows of whole heads from (x0, y0, x1, y1, …) to (x0, x1, …, y0, y1, …), the layout that `rope` rotates."""
    first, last = rows.start // head_size, -(-rows.stop // head_size)
    heads = read_rows(file, name, slice(first * head_size, last * head_size))
    split = heads.reshape(last - first, -1, 2, heads.shape[-1]).swapaxes(1, 2).reshape(heads.shape)
    return split[rows.start - first * head_size : rows.stop - first * head_size]
