"""Names for the dimensions of arrays, and the axes of the mesh that each is divided over."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, TypeVar, TypeVarTuple

import jax
from jax.sharding import AbstractMesh, Mesh, PartitionSpec
from jaxtyping import Array, PyTree, Shaped

from stages.engine.cluster.mesh import ROWS
from stages.errors import UserError

Dim = Literal["rows", "tokens", "embed", "heads", "kv_heads", "mlp", "vocab", "experts"]

PLACES: Mapping[Dim, tuple[str, ...]] = MappingProxyType(
    {
        "rows": ROWS,
        "tokens": ("sequence",),
        "embed": ("fsdp",),
        "heads": ("tensor",),
        "kv_heads": ("tensor",),
        "mlp": ("tensor",),
        "vocab": ("tensor",),
        "experts": ("expert",),
    }
)

ArrayT = TypeVar("ArrayT", bound=Shaped[Array, "..."])


Arguments = TypeVarTuple("Arguments")
ResultT = TypeVar("ResultT")


def places(*dims: Dim | None) -> PartitionSpec:
    """How an array with these dimensions is divided; one without a name is whole."""
    return PartitionSpec(*(PLACES[dim] if dim else None for dim in dims))


def spec_of(
    mesh: Mesh | AbstractMesh, what: str, shape: tuple[int, ...], dims: tuple[Dim | None, ...]
) -> PartitionSpec:
    """The same for one array.

    Args:
        mesh: of the devices.
        what: names the array in an error.
        shape: of the array.
        dims: a name for each dimension.

    Raises:
        UserError: a dimension does not divide evenly: it is never left whole for that.
    """
    for size, dim in zip(shape, dims, strict=True):
        axes = PLACES[dim] if dim else ()
        parts = math.prod(mesh.shape[axis] for axis in axes)
        if size % parts:
            names = " x ".join(f"mesh.{axis}" for axis in axes)
            raise UserError(f"{what}: its dimension `{dim}` of {size} does not divide evenly by {names} = {parts}")
    return places(*dims)


def on_several_devices() -> bool:
    """Whether this function is being compiled for several devices, which share the work."""
    return not jax.sharding.get_abstract_mesh().empty


def constrain(x: ArrayT, *dims: Dim | None) -> ArrayT:
    """Within a function that is compiled for several devices: the array is divided so. Elsewhere nothing."""
    if not on_several_devices():
        return x
    mesh = jax.sharding.get_abstract_mesh()
    return jax.lax.with_sharding_constraint(x, spec_of(mesh, "an activation", x.shape, dims))


def on_each_device(
    function: Callable[[*Arguments], ResultT], arguments: tuple[PyTree[PartitionSpec], ...], result: PartitionSpec
) -> Callable[[*Arguments], ResultT]:
    """The function of each device's own part of the arguments, for what the compiler cannot divide by itself.

    Args:
        function: exchanges by itself what it needs of other devices.
        arguments: how each argument is divided.
        result: how the result is divided.
    """
    return jax.shard_map(function, in_specs=arguments, out_specs=result) if on_several_devices() else function
