"""A function of a batch, computed by every device on its own rows."""

from collections.abc import Callable
from typing import TypeVar

import jax
from jax.sharding import PartitionSpec
from jaxtyping import PyTree

from stages.engine.cluster.mesh import DATA, Cluster

FirstT = TypeVar("FirstT", bound=PyTree)
SecondT = TypeVar("SecondT", bound=PyTree)
BatchT = TypeVar("BatchT", bound=PyTree)
ResultT = TypeVar("ResultT", bound=PyTree)

OfRows = Callable[[FirstT, SecondT, BatchT], ResultT]
"""From two trees that every device has, and a batch of rows."""


def sum_over_devices(
    cluster: Cluster, function: OfRows[FirstT, SecondT, BatchT, ResultT]
) -> OfRows[FirstT, SecondT, BatchT, ResultT]:
    """The sum of what the function gives for each device's rows; every device gets it."""

    def of_rows(first: FirstT, second: SecondT, batch: BatchT) -> ResultT:
        return jax.lax.psum(function(first, second, batch), DATA)

    return function if cluster.mesh is None else _on_each(cluster, of_rows, PartitionSpec())


def on_each_device(
    cluster: Cluster, function: OfRows[FirstT, SecondT, BatchT, ResultT]
) -> OfRows[FirstT, SecondT, BatchT, ResultT]:
    """What the function gives for each row."""
    return function if cluster.mesh is None else _on_each(cluster, function, PartitionSpec(DATA))


def _on_each(
    cluster: Cluster, function: OfRows[FirstT, SecondT, BatchT, ResultT], out: PartitionSpec
) -> OfRows[FirstT, SecondT, BatchT, ResultT]:
    everywhere, rows = PartitionSpec(), PartitionSpec(DATA)
    assert cluster.mesh is not None
    # The sums are explicit, so nothing has to be tracked about what differs between devices.
    return jax.shard_map(
        function, mesh=cluster.mesh, in_specs=(everywhere, everywhere, rows), out_specs=out, check_vma=False
    )
