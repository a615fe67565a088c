"""The devices of a stage, those of all its processes together, arranged along named axes."""

import math
from dataclasses import dataclass

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from stages.engine.cluster.config import MeshConfig
from stages.errors import UserError

AXES = ("data", "fsdp", "expert", "sequence", "tensor")
"""Neighbours along the last axis exchange the most, and lie closest together."""

WHOLE = PartitionSpec()
"""Whole on every device."""

ROWS = ("data", "fsdp", "expert")
"""Axes over which the rows of a batch are divided."""


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

    @property
    def num_row_shares(self) -> int:
        """Parts into which the rows of a batch are divided."""
        return 1 if self.mesh is None else math.prod(self.mesh.shape[axis] for axis in ROWS)


ALONE = Cluster()


def all_devices(config: MeshConfig | None = None) -> Cluster:
    """Every device of every process that runs this stage; without settings along one axis, `data`.

    Raises:
        UserError: there are more or fewer of them than the settings ask for.
    """
    return arrange(slice(None), config or MeshConfig())


def arrange(part: slice, config: MeshConfig, setting: str = "mesh") -> Cluster:
    """Some of the devices along the axes; the first of all by itself is a device alone.

    Args:
        part: of all devices, those that work together.
        config: how they are arranged.
        setting: names the settings in an error.

    Raises:
        UserError: there are more or fewer of them than the settings ask for.
    """
    devices = jax.devices()[part]
    shape = _shape(config, len(devices), setting)
    if devices == jax.devices()[:1]:
        return ALONE
    types = (AxisType.Auto,) * len(AXES)
    return Cluster(jax.make_mesh(shape, AXES, axis_types=types, devices=devices))


def replicated(mesh: Mesh) -> NamedSharding:
    """Whole on every device."""
    return NamedSharding(mesh, PartitionSpec())


def by_device(mesh: Mesh) -> NamedSharding:
    """Each device has its share of the first axis."""
    return NamedSharding(mesh, PartitionSpec(AXES))


def by_rows(mesh: Mesh) -> NamedSharding:
    """The first axis in as many parts as there are shares of rows, in the order of the devices."""
    return NamedSharding(mesh, PartitionSpec(ROWS))


def divided(mesh: Mesh, shape: tuple[int, ...], spec: PartitionSpec = WHOLE) -> NamedSharding:
    """Further divided than `spec` says, so that each device has its share.

    The axes that it leaves unused divide the longest dimension that it leaves whole and that they divide evenly; where
    there is none, each of their devices has the same.
    """
    parts = [*spec, *[None] * (len(shape) - len(spec))]
    used = {axis for part in parts if part for axis in ((part,) if isinstance(part, str) else part)}
    unused = tuple(axis for axis in AXES if axis not in used)
    share = math.prod(mesh.shape[axis] for axis in unused)
    even = [dim for dim, size in enumerate(shape) if parts[dim] is None and size and size % share == 0]
    if even:
        parts[max(even, key=lambda dim: shape[dim])] = unused
    return NamedSharding(mesh, PartitionSpec(*parts))


def _shape(config: MeshConfig, num_devices: int, setting: str) -> tuple[int, ...]:
    sizes = (config.data, config.fsdp, config.expert, config.sequence, config.tensor)
    fixed = math.prod(size for size in sizes if size != -1)
    words = ", ".join(f"{axis} {size}" for axis, size in zip(AXES, sizes, strict=True))
    if -1 in sizes and num_devices % fixed:
        raise UserError(f"{setting}: {words}: {fixed} does not divide the {num_devices} devices that there are")
    if -1 not in sizes and num_devices != fixed:
        raise UserError(
            f"{setting}: {words}: these are {fixed} devices, but there are {num_devices}; -1 stands for what is left"
        )
    return tuple(num_devices // fixed if size == -1 else size for size in sizes)
