"""A decoder from a published checkpoint: a GGUF file, or a folder with `config.json` and safetensors."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Sharding
from jaxtyping import Array, DTypeLike, Float, Shaped

from stages.engine.data.gguf import open_gguf
from stages.engine.models.paths import dotted
from stages.engine.models.transformer import Decoder
from stages.engine.models.weights.abstract import abstract_decoder, weight_shapes
from stages.engine.models.weights.checkpoint import Checkpoint, Piece, Shape, check, is_kernel
from stages.engine.models.weights.gguf_checkpoint import gguf_checkpoint
from stages.engine.models.weights.hf import open_hf
from stages.engine.models.weights.stack import DeviceStack, Finite, HostStack, Layout, make_stack
from stages.errors import UserError

Placement: TypeAlias = Callable[[str, Shape], Sharding]
"""From a weight's path and shape, layers stacked, to its place on devices."""

Convert: TypeAlias = Callable[[Float[Array, "in out"]], Mapping[str, Shaped[np.ndarray | Array, "..."]]]
"""From one matrix of a kernel to what is kept of it by name, such as small integers and their scales."""


def open_checkpoint(path: Path) -> Checkpoint:
    """Opens a `.gguf` file or a folder; no weights are read yet.

    Raises:
        UserError: not a checkpoint of a known family.
    """
    return gguf_checkpoint(open_gguf(path)) if path.suffix == ".gguf" else open_hf(path)


def load_decoder(path: Path, placement: Placement | None = None) -> Decoder:
    """Opens a checkpoint and loads its decoder in float32.

    Raises:
        UserError: as of `open_checkpoint` and `read_weights`.
    """
    return load_weights(open_checkpoint(path), placement=placement)


def load_weights(
    checkpoint: Checkpoint, *, dtype: DTypeLike = jnp.float32, placement: Placement | None = None
) -> Decoder:
    """Loads the decoder of an opened checkpoint; arguments and errors are those of `read_weights`."""
    weights = read_weights(checkpoint, dtype=dtype, placement=placement)
    graph, state = nnx.split(abstract_decoder(checkpoint.arch))
    loaded = [(path, leaf.replace(weights[dotted(path)])) for path, leaf in state.flat_state()]
    return nnx.merge(graph, nnx.from_flat_state(loaded))


def read_weights(
    checkpoint: Checkpoint,
    *,
    dtype: DTypeLike = jnp.float32,
    placement: Placement | None = None,
    convert: Mapping[str, Convert] = MappingProxyType({}),
) -> dict[str, Shaped[Array, "..."]]:
    """Reads all weights, in strips of matrices, to where they stay.

    Args:
        checkpoint: opened.
        dtype: of the weights: float32 or bfloat16.
        placement: of each weight; all are whole on the first device without it.
        convert: kernels by path, such as `blocks.mlp.up_proj.kernel`, that are kept in another form. What is kept of a
            matrix is stacked as matrices are; under the name n it becomes the weight `blocks.mlp.up_proj.kernel.n`,
            whose place is asked for by the kernel's path and its own shape.

    Returns:
        Weights by path, layers stacked.

    Raises:
        UserError: tensors are missing, unknown, of another shape or not readable, or hold values that are no numbers;
            all are named.
    """
    shapes = weight_shapes(checkpoint.arch)
    check(checkpoint, shapes)
    finite, weights = list[Finite](), dict[str, Array]()
    for path, pieces in checkpoint.pieces.items():
        layout = Layout(shapes[path], np.dtype(dtype), len(pieces[0].lead), is_kernel(path))
        place = partial(_place, placement, path)
        if path in convert:
            found, parts = _read_converted(checkpoint, pieces, layout, place, convert[path])
            weights |= {f"{path}.{name}": part for name, part in parts.items()}
        else:
            stack = make_stack(layout, place(layout.shape))
            found = stack.fill(pieces, checkpoint.read)
            weights[path] = stack.finish()
        finite += found
    _check_finite(checkpoint.path, finite)
    return weights


def _place(placement: Placement | None, path: str, shape: Shape) -> Sharding | None:
    return None if placement is None else placement(path, shape)


def _read_converted(
    checkpoint: Checkpoint,
    pieces: Sequence[Piece],
    layout: Layout,
    place: Callable[[Shape], Sharding | None],
    convert: Convert,
) -> tuple[list[Finite], dict[str, Shaped[Array, "..."]]]:
    """What is kept of a weight: only one of its matrices is ever there in full."""
    finite, stacks = list[Finite](), dict[str, HostStack | DeviceStack]()
    outer, own = layout.shape[: layout.num_stacked], layout.shape[layout.num_stacked :]
    for piece in pieces:
        matrix = make_stack(Layout(own, layout.dtype, 0, layout.transposed), None)
        finite += matrix.fill([piece._replace(lead=())], checkpoint.read)
        for name, part in convert(matrix.finish()).items():
            kept = Layout((*outer, *part.shape), np.dtype(part.dtype), len(outer), transposed=False)
            if name not in stacks:
                stacks[name] = make_stack(kept, place(kept.shape))
            stacks[name].put(piece.lead, part)
    return finite, {name: stack.finish() for name, stack in stacks.items()}


def _check_finite(path: Path, finite: Sequence[Finite]) -> None:
    flags = jax.device_get([flag for _, flag in finite])
    bad = dict.fromkeys(piece.name for (piece, _), flag in zip(finite, flags, strict=True) if not flag)
    if bad:
        raise UserError(f"{path}: NaN or infinite values in {', '.join(bad)}")
