"""The devices of a stage, those of all its processes together, as one axis over which rows and state are divided."""

from dataclasses import dataclass

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

DATA = "data"
"""The axis: each device computes its share of a batch's rows, and keeps its share of the optimizer's state."""


@dataclass(frozen=True)
class Cluster:
    """Devices that work together.

    Attributes:
        mesh: all of them; None for one device alone, whose arrays are left where jax puts them.
    """

    mesh: Mesh | None = None

    @property
    def num_devices(self) -> int:
        """Devices of all processes."""
        return 1 if self.mesh is None else self.mesh.size


ALONE = Cluster()


def all_devices() -> Cluster:
    """Every device of every process that runs this stage."""
    devices = jax.devices()
    if len(devices) == 1:
        return ALONE
    return Cluster(jax.make_mesh((len(devices),), (DATA,), axis_types=(AxisType.Auto,), devices=devices))


def replicated(mesh: Mesh) -> NamedSharding:
    """Whole on every device."""
    return NamedSharding(mesh, PartitionSpec())


def by_rows(mesh: Mesh) -> NamedSharding:
    """Each device has its share of the first axis."""
    return NamedSharding(mesh, PartitionSpec(DATA))


def divided(mesh: Mesh, shape: tuple[int, ...]) -> NamedSharding:
    """Each device has its share of the longest axis that divides evenly; whole everywhere where none does."""
    even = [axis for axis, size in enumerate(shape) if size and size % mesh.size == 0]
    if not even:
        return replicated(mesh)
    longest = max(even, key=lambda axis: shape[axis])
    return NamedSharding(mesh, PartitionSpec(*[None] * longest, DATA))
