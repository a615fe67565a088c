"""Weights that are divided over eight devices as they are read; run by `test_stack.py`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array
from stage_trial import TINY

from stages.engine.models.weights import stack as stack_module
from stages.engine.models.weights.checkpoint import Piece, is_kernel
from stages.engine.models.weights.load import load_decoder, open_checkpoint, read_weights
from stages.engine.models.weights.stack import DeviceStack, HostStack, Layout

LAYERS, IN, OUT = 4, 8, 16
SPECS = [
    PartitionSpec(),
    PartitionSpec(None, "x", "y"),
    PartitionSpec(None, "y"),
    PartitionSpec(None, None, "y"),
    PartitionSpec("x", None, ("y",)),
    PartitionSpec("y", "x"),
]


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return Mesh(np.array(jax.devices()).reshape(2, 4), ("x", "y"))


def matrix(layer: int) -> np.ndarray:
    """In the layout of files."""
    return (np.arange(OUT * IN, dtype=np.float32) + 1000 * layer).reshape(OUT, IN)


class Reader:
    """Counts the values that are read."""

    def __init__(self) -> None:
        self.num_values = 0

    def __call__(self, piece: Piece, rows: slice, out: np.ndarray) -> None:
        self.num_values += out.size
        out[...] = matrix(piece.lead[0])[rows]


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("kind", [HostStack, DeviceStack])
def test_every_device_gets_its_part_and_no_value_is_read_twice(
    mesh: Mesh, spec: PartitionSpec, kind: type[HostStack] | type[DeviceStack], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack_module, "STRIP_VALUES", 3 * IN)
    layout = Layout((LAYERS, IN, OUT), np.dtype(np.float32), 1, transposed=True)
    stack, read = kind(layout, NamedSharding(mesh, spec)), Reader()
    finite = stack.fill([Piece((layer,), f"layer {layer}") for layer in range(LAYERS)], read)
    whole = stack.finish()
    assert whole.sharding == NamedSharding(mesh, spec)
    np.testing.assert_array_equal(whole, np.stack([matrix(layer).T for layer in range(LAYERS)]))
    assert read.num_values == LAYERS * IN * OUT
    assert finite
    assert all(bool(flag) for _, flag in finite)


def test_a_decoder_is_divided_as_it_is_read(mesh: Mesh) -> None:
    def place(path: str, shape: tuple[int, ...]) -> NamedSharding:
        # The vocabulary of 259 does not divide.
        divided = is_kernel(path) and not path.startswith("lm_head")
        return NamedSharding(mesh, PartitionSpec(*[None] * (len(shape) - 1), "y") if divided else PartitionSpec())

    def halves(kernel: Array) -> dict[str, Array]:
        return {"doubled": 2 * kernel, "first": kernel[:1].astype(jnp.bfloat16)}

    path = "blocks.mlp.down_proj.kernel"
    divided, whole = load_decoder(TINY, place), load_decoder(TINY)
    converted = read_weights(open_checkpoint(TINY), placement=place, convert={path: halves})
    kernel, quarter = whole.blocks.mlp.down_proj.kernel[...], divided.blocks.mlp.down_proj.kernel[...]
    assert isinstance(kernel, jax.Array)
    assert isinstance(quarter, jax.Array)
    for one, other in zip(jax.tree.leaves(nnx.state(divided)), jax.tree.leaves(nnx.state(whole)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert quarter.addressable_shards[0].data.size == kernel.size // 4
    assert converted[f"{path}.doubled"].addressable_shards[0].data.size == kernel.size // 4
    np.testing.assert_array_equal(converted[f"{path}.doubled"], 2 * kernel)
    np.testing.assert_array_equal(converted[f"{path}.first"], kernel[:, :1].astype(jnp.bfloat16))
