"""Log-probabilities of packed responses under a model."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Float32

from stages.engine.cluster.axes import constrain
from stages.engine.cluster.mesh import Cluster
from stages.engine.cluster.placement import divide_rows
from stages.engine.cluster.programs import compiled
from stages.engine.data.batching import Group
from stages.engine.data.packing import PackedBatch, Packing
from stages.engine.models.heads import score_targets
from stages.engine.models.lora import Frozen, Weights, bind
from stages.engine.models.transformer import Cells
from stages.engine.training.responses import response_sums

Sums = Float[Array, "B M G"] | Float32[np.ndarray, "B M G"]
"""Of each response of a micro-batch the log-probability, summed over its tokens, in nats."""

ScoreResponses = Callable[[Weights, PackedBatch], Float[Array, "B M G"]]
"""From trained weights and a micro-batch to its sums."""


class Reference(NamedTuple):
    """A model that is compared with and not trained."""

    score: ScoreResponses
    weights: Weights


class Candidates(NamedTuple):
    """Groups of responses, one for each row of a dataset, and the shape of their micro-batches.

    Attributes:
        groups: all of them.
        packing: of as many as an update has.
        batch_size: groups of an update.
    """

    groups: Sequence[Group]
    packing: Packing
    batch_size: int


def make_response_scorer(frozen: Frozen, group_size: int, cluster: Cluster) -> ScoreResponses:
    """A compiled function; the devices of a cluster share the rows."""

    def score(weights: Weights, base: Cells, packed: PackedBatch) -> Float[Array, "B M G"]:
        logprobs = score_targets(bind(frozen.graph, weights, base), packed.batch)
        return constrain(response_sums(logprobs, packed, group_size), "rows", None, None)

    program = compiled(cluster, score)
    return lambda weights, packed: program(weights, frozen.base, divide_rows(cluster, packed))
