"""A decoder from a published checkpoint: a GGUF file, or a folder with `config.json` and safetensors."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Sharding
from jaxtyping import Array, DTypeLike, Float, PyTree, Shaped

from stages.engine.data.gguf import open_gguf
from stages.engine.models.paths import dotted
from stages.engine.models.transformer import Decoder
from stages.engine.models.weights.checkpoint import Checkpoint, Piece, Shape, check, is_kernel
from stages.engine.models.weights.gguf_checkpoint import gguf_checkpoint
from stages.engine.models.weights.hf import open_hf
from stages.engine.models.weights.stack import DeviceStack, Finite, Layout, make_stack
from stages.errors import UserError

Placement: TypeAlias = Callable[[str, Shape], Sharding]
"""From a weight's path and shape, layers stacked, to its place on devices."""

Convert: TypeAlias = Callable[[Float[Array, "in out"]], PyTree[Shaped[Array, "..."]]]
"""From one matrix of a kernel to the arrays that are kept of it, such as small integers and their scales."""


def open_checkpoint(path: Path) -> Checkpoint:
    """Opens a `.gguf` file or a folder; no weights are read yet.

    Raises:
        UserError: not a checkpoint of a known family.
    """
    return gguf_checkpoint(open_gguf(path)) if path.suffix == ".gguf" else open_hf(path)


def load_decoder(path: Path, placement: Placement | None = None) -> Decoder:
    """Opens a checkpoint and loads its decoder in float32.

    Raises:
        UserError: as of `open_checkpoint` and `load_weights`.
    """
    return load_weights(open_checkpoint(path), placement=placement)


def load_weights(
    checkpoint: Checkpoint,
    *,
    dtype: DTypeLike = jnp.float32,
    placement: Placement | None = None,
    convert: Mapping[str, Convert] = MappingProxyType({}),
) -> Decoder:
    """Reads all weights, in strips of matrices, to where they stay.

    Args:
        checkpoint: opened.
        dtype: of the weights: float32 or bfloat16.
        placement: of each weight; all are whole on the first device without it.
        convert: kernels by path, such as `blocks.mlp.up_proj.kernel`, that are kept in another form. The arrays that
            come of a matrix are stacked as matrices are, and what `convert` put them in takes the kernel's place; the
            weight's placement is asked for each of them, by its shape.

    Raises:
        UserError: tensors are missing, unknown, of another shape or not readable, or hold values that are no numbers;
            all are named.
    """
    graph, state = nnx.split(nnx.eval_shape(lambda: Decoder(checkpoint.arch, rngs=nnx.Rngs(0))))
    shapes = {dotted(path): leaf.get_value().shape for path, leaf in state.flat_state()}
    check(checkpoint, shapes)
    finite, weights = list[Finite](), dict[str, PyTree]()
    for path, pieces in checkpoint.pieces.items():
        layout = Layout(shapes[path], np.dtype(dtype), len(pieces[0].lead), is_kernel(path))

        def place(shape: Shape, path: str = path) -> Sharding | None:
            return None if placement is None else placement(path, shape)

        if path in convert:
            weights[path], found = _load_converted(checkpoint, pieces, layout, place, convert[path])
        else:
            stack = make_stack(layout, place(layout.shape))
            found = stack.fill(pieces, checkpoint.read)
            weights[path] = stack.finish()
        finite += found
    _check_finite(checkpoint.path, finite)
    loaded = [(path, leaf.replace(weights[dotted(path)])) for path, leaf in state.flat_state()]
    return nnx.merge(graph, nnx.from_flat_state(loaded))


def _load_converted(
    checkpoint: Checkpoint,
    pieces: Sequence[Piece],
    layout: Layout,
    place: Callable[[Shape], Sharding | None],
    convert: Convert,
) -> tuple[PyTree[Shaped[Array, "..."]], list[Finite]]:
    """A weight in another form: only one of its matrices is ever there in full."""
    finite, stacks = list[Finite](), list[DeviceStack]()
    outer, one = (
        layout.shape[: layout.num_stacked],
        Layout(layout.shape[layout.num_stacked :], layout.dtype, 0, transposed=True),
    )
    structure = None
    for piece in pieces:
        matrix = make_stack(one, None)
        finite += matrix.fill([piece._replace(lead=())], checkpoint.read)
        parts, structure = jax.tree.flatten(convert(matrix.finish()))
        if not stacks:
            layouts = [Layout((*outer, *part.shape), part.dtype, len(outer), transposed=False) for part in parts]
            stacks = [DeviceStack(layout, place(layout.shape)) for layout in layouts]
        for stack, part in zip(stacks, parts, strict=True):
            stack.put(piece.lead, part)
    assert structure is not None
    return jax.tree.unflatten(structure, [stack.finish() for stack in stacks]), finite


def _check_finite(path: Path, finite: Sequence[Finite]) -> None:
    flags = jax.device_get([flag for _, flag in finite])
    bad = dict.fromkeys(piece.name for (piece, _), flag in zip(finite, flags, strict=True) if not flag)
    if bad:
        raise UserError(f"{path}: NaN or infinite values in {', '.join(bad)}")
