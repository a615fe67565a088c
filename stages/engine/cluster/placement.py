"""Arrays onto the devices of a cluster and back; alone, a device needs none of it and gets its arrays unchanged.

Each process holds what it places as a whole, and keeps only what belongs to its own devices: nothing is sent. On the
way back something is, where an array is divided over several processes.
"""

from collections.abc import Callable
from functools import cache
from typing import TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, Sharding
from jaxtyping import Array, PyTree, Shaped

from stages.engine.cluster.mesh import Cluster, by_rows, replicated

TreeT = TypeVar("TreeT", bound=PyTree)


def replicate(cluster: Cluster, tree: TreeT) -> TreeT:
    """Every array whole on every device."""
    mesh = cluster.mesh
    if mesh is None:
        return tree
    return jax.tree.map(lambda leaf: place(leaf, replicated(mesh)), tree)


def divide_rows(cluster: Cluster, tree: TreeT) -> TreeT:
    """Every array's first axis in equal parts, in the order of the devices."""
    mesh = cluster.mesh
    if mesh is None:
        return tree
    return jax.tree.map(lambda leaf: place(leaf, by_rows(mesh)), tree)


def of_this_process(cluster: Cluster, tree: TreeT) -> TreeT:
    """Arrays of the cluster as a whole in this process's memory, which other processes need not follow.

    All processes call this together: what is divided over them is put together by all, one array after the other.
    """
    mesh = cluster.mesh
    return tree if mesh is None else jax.tree.map(lambda leaf: _whole(mesh, leaf), tree)


def _whole(mesh: Mesh, leaf: Shaped[Array, "..."]) -> Shaped[np.ndarray, "..."]:
    if not (leaf.is_fully_replicated or leaf.is_fully_addressable):
        leaf = _gathered(mesh)(leaf)
    return np.asarray(leaf.addressable_data(0) if leaf.is_fully_replicated else leaf)


@cache
def _gathered(mesh: Mesh) -> Callable[[Array], Array]:
    """A program that makes an array whole on every device."""
    return jax.jit(lambda leaf: leaf, out_shardings=replicated(mesh))


def place(leaf: Shaped[np.ndarray, "..."] | Shaped[Array, "..."], sharding: Sharding) -> Shaped[Array, "..."]:
    """An array that this process holds as a whole, where it shall lie; one that lies there already as it is."""
    if isinstance(leaf, jax.Array) and leaf.sharding.is_equivalent_to(sharding, leaf.ndim):
        return leaf
    value = np.asarray(leaf)
    return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])
