"""One of two processes with two devices each; started by `test_placement.py`."""

import sys

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from stages.contract import ClusterRequest
from stages.engine.cluster.config import MeshConfig
from stages.engine.cluster.mesh import all_devices, replicated
from stages.engine.cluster.placement import of_this_process, place
from stages.engine.cluster.processes import join, leave

VALUES = np.arange(24, dtype=np.float32).reshape(4, 6)


def main(coordinator: str, process: int) -> None:
    join(ClusterRequest(coordinator=coordinator, num_processes=2, process_id=process))
    cluster = all_devices(MeshConfig(data=1, fsdp=-1))
    assert cluster.mesh is not None
    divided = place(VALUES, NamedSharding(cluster.mesh, PartitionSpec("fsdp")))
    assert {shard.data.shape for shard in divided.addressable_shards} == {(1, 6)}
    assert not divided.is_fully_addressable
    found = of_this_process(cluster, {"divided": divided, "whole": place(VALUES, replicated(cluster.mesh))})
    for leaf in found.values():
        assert isinstance(leaf, np.ndarray)
        np.testing.assert_array_equal(leaf, VALUES)
    assert jax.process_count() == 2
    leave()


main(sys.argv[1], int(sys.argv[2]))
