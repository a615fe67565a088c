"""The baseline of KTO: how far the policy is from its reference on responses that are not the prompts' own."""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int32

from stages.dpo.reference import RefLogps
from stages.dpo.scoring import Candidates, ScoreResponses, Sums
from stages.engine.cluster.axes import constrain
from stages.engine.cluster.mesh import Cluster
from stages.engine.cluster.placement import divide_rows
from stages.engine.cluster.programs import compiled
from stages.engine.data.batching import Group
from stages.engine.models.lora import Weights
from stages.engine.objectives.preference import kto_baseline

Baseline = Callable[[Weights, Sequence[int]], Float[Array, " B"]]
"""From the policy and the rows of an update to one number, for each row of a micro-batch."""


def mismatched(groups: Sequence[Group], max_tokens: int) -> list[Group]:
    """Each prompt with the responses of the group after it, the last with those of the first (KTO, arXiv 2402.01306).

    A response that is too long for its new prompt is cut off.
    """
    shifted = [*groups[1:], *groups[:1]]
    return [_cut(group, other, max_tokens - len(group.prompt)) for group, other in zip(groups, shifted, strict=True)]


def _cut(group: Group, other: Group, room: int) -> Group:
    learnt = [np.ones(len(ids), np.bool_) for ids in other.responses] if other.learnt is None else other.learnt
    return Group(group.prompt, [ids[:room] for ids in other.responses], [mask[:room] for mask in learnt])


def make_baseline(
    score: ScoreResponses, reference: RefLogps, given: Candidates, num_rows: int, cluster: Cluster
) -> Baseline:
    """The mean log-ratio over all of an update's rows, so that it does not depend on how they are packed.

    Args:
        score: of the policy.
        reference: of the same responses.
        given: for each row of the dataset its prompt with the responses of another row.
        num_rows: B, of the micro-batches that the baseline is for.
        cluster: whose devices share the rows.
    """

    def log_ratios(
        logps: Float[Array, "B M G"], ref_logps: Sums, groups: Int32[np.ndarray, "B M"]
    ) -> Float[Array, " 2"]:
        there = jnp.broadcast_to((jnp.asarray(groups) != 0)[:, :, None], logps.shape)
        total = jnp.where(there, logps - jnp.asarray(ref_logps), 0.0).sum()
        return jnp.stack([total, there.sum().astype(total.dtype)])

    def mean(parts: list[Float[Array, " 2"]]) -> Float[Array, " B"]:
        total, number = jnp.stack(parts).sum(0)
        return constrain(jnp.broadcast_to(kto_baseline(total, number), num_rows), "rows")

    add_up, average = compiled(cluster, log_ratios), compiled(cluster, mean)

    def baseline(weights: Weights, rows: Sequence[int]) -> Float[Array, " B"]:
        batches = given.packing.pack([given.groups[row] for row in rows])
        return average(
            [
                add_up(score(weights, packed), divide_rows(cluster, ref_logps), divide_rows(cluster, packed.groups))
                for packed, ref_logps in zip(batches, reference(rows, batches), strict=True)
            ]
        )

    return baseline
