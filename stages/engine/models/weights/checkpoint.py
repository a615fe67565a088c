"""A published checkpoint as its readers see it: which tensors it has, and where each belongs in a decoder."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stages.engine.models.architecture import Architecture
from stages.engine.models.families.family import REWARD_HEAD, Family, WeightName
from stages.errors import UserError

Shape = tuple[int, ...]

OUTPUT_PATH = "lm_head."
"""How paths of an output projection begin."""


class Piece(NamedTuple):
    """A matrix or a vector of a checkpoint.

    Attributes:
        lead: its place in the stack of its weight: numbers of a layer and of an expert, or nothing.
        name: the tensor that holds it.
        part: its number in a tensor that holds a stack of them.
    """

    lead: Shape
    name: str
    part: int | None = None


@dataclass(frozen=True)
class Checkpoint:
    """An opened checkpoint. Matrices lie in files as [out, in], and in a decoder's kernels as [in, out].

    Attributes:
        path: file or folder.
        family: of the decoder.
        arch: its sizes.
        shapes: of the tensors, without those that no decoder needs.
        pieces: of each weight of the decoder, by its path.
        read: writes some rows of a piece into an array of float32 or bfloat16, in the layout of files.
        problems: what is wrong with it beyond names and shapes.
        text_part: whether other programs see it within a model of text and images.
        head: shape of the tensor that holds the head, where this is a reward model.
    """

    path: Path
    family: Family
    arch: Architecture
    shapes: Mapping[str, Shape]
    pieces: Mapping[str, Sequence[Piece]]
    read: Callable[[Piece, slice, np.ndarray], None]
    problems: Sequence[str] = ()
    text_part: bool = False
    head: Shape | None = None


def is_kernel(path: str) -> bool:
    """Whether a weight is a matrix that files hold transposed."""
    return path.endswith(".kernel")


def weight_names(family: Family, arch: Architecture, *, reward: bool = False) -> list[WeightName]:
    """The weights that this decoder has; as a reward model it has a head for rewards and no output projection."""
    without_output = arch.tied_embeddings or reward
    names = [name for name in family.weights if not (without_output and name.path.startswith(OUTPUT_PATH))]
    return [*names, REWARD_HEAD] if reward else names


def _leads(path: str, arch: Architecture) -> list[Shape]:
    """Places of a weight's matrices or vectors in its stack: layers, and experts of each layer."""
    layers = (range(arch.num_layers),) if path.startswith("blocks.") else ()
    return list(product(*layers, *_experts(path, arch)))


def _experts(path: str, arch: Architecture) -> tuple[range, ...]:
    stacked = arch.experts is not None and path.startswith("blocks.mlp.") and ".router." not in path
    return (range(arch.experts.count),) if arch.experts is not None and stacked else ()


def make_pieces(path: str, template: str, arch: Architecture) -> list[Piece]:
    """A weight's pieces, by a name with places for the numbers of layers and, perhaps, of experts."""
    return [_piece(lead, template, by_expert="{expert}" in template) for lead in _leads(path, arch)]


def _piece(lead: Shape, template: str, *, by_expert: bool) -> Piece:
    if len(lead) < 2:
        return Piece(lead, template.format(layer=lead[0] if lead else None))
    layer, expert = lead
    return Piece(lead, template.format(layer=layer, expert=expert), None if by_expert else expert)


def check(checkpoint: Checkpoint, expected: Mapping[str, Shape]) -> None:
    """Compares a checkpoint with the shapes of a decoder's weights.

    Raises:
        UserError: tensors are missing, unknown, of another shape or not readable; all are named.
    """
    problems = [*checkpoint.problems, *_compare(checkpoint, expected)]
    if problems:
        raise UserError(f"{checkpoint.path}: " + "; ".join(problems))


def _compare(checkpoint: Checkpoint, expected: Mapping[str, Shape]) -> Iterator[str]:
    wanted = {
        piece.name: stored_shape(path, expected[path], piece)
        for path, pieces in checkpoint.pieces.items()
        for piece in pieces
    }
    yield from (f"{name} is missing" for name in sorted(wanted.keys() - checkpoint.shapes.keys()))
    for name, found in checkpoint.shapes.items():
        if name not in wanted:
            yield f"{name} has no place in this family"
        elif found != wanted[name]:
            yield f"{name} has shape {found}, expected {wanted[name]}"


def stored_shape(path: str, whole: Shape, piece: Piece) -> Shape:
    """Shape of the tensor that holds a piece of a weight with this shape."""
    own = whole[len(piece.lead) :]
    own = own[::-1] if is_kernel(path) else own
    return own if piece.part is None else (whole[len(piece.lead) - 1], *own)
