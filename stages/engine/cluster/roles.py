"""Two models on devices of their own: which devices each has, and how arrays go from one to the other."""

import jax
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding
from jaxtyping import Array, Shaped

from stages.engine.cluster.config import MeshConfig
from stages.engine.cluster.mesh import Cluster, arrange
from stages.errors import UserError


def split_devices(config: MeshConfig, other: MeshConfig, num_other: int, role: str) -> tuple[Cluster, Cluster]:
    """The devices of this process in two clusters, which compute at the same time.

    Args:
        config: of the first devices.
        other: of the last ones.
        num_other: how many these are.
        role: what they are for, the name of their settings.

    Raises:
        UserError: no device is left, the settings ask for more or fewer, or there are several processes.
    """
    num_devices = jax.device_count()
    if jax.process_count() > 1:
        raise UserError(f"{role}.num_devices: devices are parted within one process; let all of them share the work")
    if num_other >= num_devices:
        raise UserError(f"{role}.num_devices: {num_other} of the {num_devices} devices leave none for the training")
    first = arrange(slice(-num_other), config)
    return first, arrange(slice(-num_other, None), other, f"{role}.mesh")


def hand_over(array: Shaped[Array, "..."], cluster: Cluster, spec: PartitionSpec) -> Shaped[Array, "..."]:
    """An array of other devices of this process on those of a cluster, divided so; nobody waits for it here."""
    mesh = cluster.mesh
    sharding = SingleDeviceSharding(jax.devices()[0]) if mesh is None else NamedSharding(mesh, spec)
    return jax.device_put(array, sharding)
