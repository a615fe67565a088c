"""Log-probabilities of given tokens under a frozen model."""

from collections.abc import Callable

from jaxtyping import Array, Float

from stages.engine.cluster.axes import constrain
from stages.engine.cluster.mesh import ALONE, Cluster
from stages.engine.cluster.programs import compiled
from stages.engine.data.batching import Batch
from stages.engine.models.heads import score_targets
from stages.engine.models.lora import Frozen, Weights, bind
from stages.engine.models.transformer import Cells


def make_scorer(
    frozen: Frozen, temperature: float, cluster: Cluster = ALONE
) -> Callable[[Weights, Batch], Float[Array, "B R"]]:
    """A compiled function from an adapter and a batch to the log-probabilities of its targets, in nats.

    The devices of a cluster share the rows.
    """

    def score(adapter: Weights, base: Cells, batch: Batch) -> Float[Array, "B R"]:
        return constrain(score_targets(bind(frozen.graph, adapter, base), batch, temperature), "rows", None)

    program = compiled(cluster, score)
    return lambda adapter, batch: program(adapter, frozen.base, batch)
