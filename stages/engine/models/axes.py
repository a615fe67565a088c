"""How the weights of a decoder are divided over the devices of a cluster."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import jax
import optax
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec, Sharding
from jax.tree_util import DictKey, KeyPath
from jaxtyping import Array, Shaped

from stages.contract import Quantization
from stages.engine.cluster.axes import Dim, spec_of
from stages.engine.cluster.mesh import WHOLE, Cluster, divided
from stages.engine.cluster.placement import place
from stages.engine.models.architecture import Architecture
from stages.engine.models.lora import Weights
from stages.engine.models.paths import dotted
from stages.engine.models.quantise import converters
from stages.engine.models.transformer import Cells
from stages.engine.models.weights.abstract import weight_shapes
from stages.errors import UserError

DIMS: Mapping[str, tuple[Dim | None, ...]] = MappingProxyType(
    {
        "embed.embedding": ("vocab", "embed"),
        "lm_head.kernel": ("embed", "vocab"),
        "q_proj.kernel": ("embed", "heads"),
        "k_proj.kernel": ("embed", "kv_heads"),
        "v_proj.kernel": ("embed", "kv_heads"),
        "o_proj.kernel": ("heads", "embed"),
        "router.kernel": ("embed", None),
        "gate_proj.kernel": ("embed", "mlp"),
        "up_proj.kernel": ("embed", "mlp"),
        "down_proj.kernel": ("mlp", "embed"),
    }
)
"""Matrices by the end of their name; in blocks a dimension of layers stands before these, and one of experts after it.

What is not listed is small and whole on every device: norms, biases, and the two matrices of a linear layer's adapter.
"""

EXPERT_ADAPTERS: Mapping[str, tuple[Dim | None, ...]] = MappingProxyType(
    {
        "gate_proj.kernel_lora_a": ("experts", "embed", None),
        "gate_proj.kernel_lora_b": ("experts", None, "mlp"),
        "up_proj.kernel_lora_a": ("experts", "embed", None),
        "up_proj.kernel_lora_b": ("experts", None, "mlp"),
        "down_proj.kernel_lora_a": ("experts", "mlp", None),
        "down_proj.kernel_lora_b": ("experts", None, "embed"),
    }
)
"""The matrices of experts' adapters after a dimension of layers: there are many of them, divided as their kernels."""

Placement = Callable[[str, tuple[int, ...]], Sharding]
"""From a weight's dotted name and shape to where its parts lie."""


def weight_spec(mesh: Mesh | AbstractMesh, name: str, shape: tuple[int, ...]) -> PartitionSpec:
    """How a weight is divided.

    Raises:
        UserError: a dimension does not divide evenly.
    """
    dims = _dims(name, len(shape))
    return spec_of(mesh, name, shape, dims) if dims else WHOLE


def _dims(name: str, ndim: int) -> tuple[Dim | None, ...]:
    """Names of a weight's dimensions; none for one that is not divided."""
    end = ".".join(name.removesuffix(".array.qvalue").removesuffix(".array.scale").split(".")[-2:])
    if ndim == 4 and end in EXPERT_ADAPTERS:
        return (None, *EXPERT_ADAPTERS[end])
    dims = DIMS.get(end)
    if dims is None:
        return ()
    stacked = ndim - len(dims)
    before: tuple[Dim | None, ...] = (None, "experts") if stacked == 2 else (None,) * stacked
    return (*before, *dims)


def make_placement(cluster: Cluster) -> Placement | None:
    """Where weights lie on the devices of a cluster; none for one device alone."""
    mesh = cluster.mesh
    if mesh is None:
        return None
    return lambda name, shape: NamedSharding(mesh, weight_spec(mesh, name, shape))


def check_division(cluster: Cluster, arch: Architecture, quantization: Quantization | None = None) -> None:
    """Checks that a decoder can be divided over the devices, before its weights are read.

    Raises:
        UserError: heads, a dimension of a weight, or tiles that share a scale do not divide evenly; all are named.
    """
    mesh = cluster.mesh
    if mesh is None:
        return
    tensor = mesh.shape["tensor"]
    counts = {"query heads": arch.num_heads, "key and value heads": arch.num_kv_heads}
    problems = [
        f"its {count} {what} do not divide evenly by mesh.tensor = {tensor}"
        for what, count in counts.items()
        if count % tensor
    ]
    in_tiles = converters(arch, quantization) if quantization else {}
    for name, shape in weight_shapes(arch).items():
        try:
            weight_spec(mesh, name, shape)
            if quantization and name in in_tiles:
                *stacked, inputs, outputs = shape
                tiles = f"{name} in tiles of {quantization.tile_size}"
                in_tiles_shape = (*stacked, inputs // quantization.tile_size, outputs)
                spec_of(mesh, tiles, in_tiles_shape, _dims(name, len(shape)))
        except UserError as error:
            problems.append(str(error))
    if problems:
        raise UserError(f"the model cannot be divided so: {'; '.join(problems)}")


def base_of_this_process(cluster: Cluster, base: Cells) -> Cells:
    """A base for programs that other processes do not follow: on one device, or divided over this process's.

    Raises:
        UserError: they are divided over the devices of several processes.
    """
    if cluster.mesh is None:
        return base
    if all(leaf.is_fully_replicated for leaf in jax.tree.leaves(base)):
        return jax.tree.map(lambda leaf: leaf.addressable_data(0), base)
    if jax.process_count() > 1:
        raise UserError(
            "mesh: a stage that samples needs the whole model in each of its processes; divide it over the devices of "
            "one process, or divide rows only: mesh.data"
        )
    return base


def place_weights(cluster: Cluster, weights: Weights) -> Weights:
    """Trained weights onto the devices."""
    placement = make_placement(cluster)
    if placement is None:
        return weights
    return {name: place(leaf, placement(name, leaf.shape)) for name, leaf in weights.items()}


def keep_weights(cluster: Cluster, weights: Weights) -> Weights:
    """Within a compiled function: trained weights, or their gradient, lie as their names say."""
    placement = make_placement(cluster)
    if placement is None:
        return weights
    return {name: jax.lax.with_sharding_constraint(leaf, placement(name, leaf.shape)) for name, leaf in weights.items()}


def keep_moments(cluster: Cluster, state: optax.OptState) -> optax.OptState:
    """Within a compiled function: an optimizer's moments lie as their weights, and the copies share the rest."""
    mesh = cluster.mesh
    if mesh is None:
        return state

    def keep(path: KeyPath, leaf: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
        sharding = divided(mesh, leaf.shape, weight_spec(mesh, _name(path), leaf.shape))
        return jax.lax.with_sharding_constraint(leaf, sharding)

    return jax.tree_util.tree_map_with_path(keep, state)


def _name(path: KeyPath) -> str:
    """The weight's name in a tree of weights or of moments."""
    return dotted(key.key for key in path if isinstance(key, DictKey))
