"""Log-probabilities of given tokens under a frozen model."""

from collections.abc import Callable

import jax
from jaxtyping import Array, Float

from stages.engine.cluster.mesh import ALONE, Cluster
from stages.engine.cluster.shares import on_each_device
from stages.engine.data.batching import Batch
from stages.engine.models.heads import score_targets
from stages.engine.models.lora import Frozen, Weights, bind
from stages.engine.models.transformer import Cells


def make_scorer(
    frozen: Frozen, temperature: float, cluster: Cluster = ALONE
) -> Callable[[Weights, Batch], Float[Array, "B R"]]:
    """A compiled function from an adapter and a batch to the log-probabilities of its targets, in nats.

    Each device of a cluster scores its own rows.
    """

    def score(adapter: Weights, base: Cells, batch: Batch) -> Float[Array, "B R"]:
        return score_targets(bind(frozen.graph, adapter, base), batch, temperature)

    compiled = jax.jit(on_each_device(cluster, score))
    return lambda adapter, batch: compiled(adapter, frozen.base, batch)
