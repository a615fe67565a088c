"""What all processes must decide alike."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from stages.engine.cluster.mesh import Cluster, by_device, replicated
from stages.engine.cluster.placement import place


class Agreement:
    """Wishes that one process has and all must follow at the same step.

    All processes must ask equally often. Alone, a process gets its own wish back at once.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._asked: Bool[Array, ""] | None = None

    def wished(self, wish: bool) -> bool:
        """Whether any process had the wish when it asked the last time: nobody waits for the others' answers."""
        if self._cluster.mesh is None:
            return wish
        before, self._asked = self._asked, _any(self._cluster, wish)
        return before is not None and bool(before)


def agreed(cluster: Cluster, opinion: bool) -> bool:
    """Whether all processes are of this opinion; waits for them."""
    return opinion if cluster.mesh is None else not bool(_any(cluster, not opinion))


def _any(cluster: Cluster, mine: bool) -> Bool[Array, ""]:
    assert cluster.mesh is not None
    votes = place(np.full(cluster.num_devices, mine), by_device(cluster.mesh))
    return jax.jit(jnp.any, out_shardings=replicated(cluster.mesh))(votes)
