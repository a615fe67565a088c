"""Log-probabilities of whole responses under a model."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float64

from stages.engine.cluster.mesh import Cluster
from stages.engine.cluster.placement import divide_rows, of_this_process
from stages.engine.data.batching import Group, PackedRow, TargetShape, by_width, pack_rows, round_up
from stages.engine.models.axes import place_weights
from stages.engine.models.source import LoadedModel
from stages.engine.rollout.scoring import make_scorer


def response_logprobs(
    model: LoadedModel,
    groups: Sequence[Group],
    *,
    micro_batch: int,
    cluster: Cluster,
    beat: Callable[[int], None],
) -> list[Float64[np.ndarray, " G"]]:
    """The log-probability of each response to each prompt, summed over its targets, in nats.

    A row has one group and a width that follows from its length, so that little of it is empty.

    Args:
        model: on the devices of the cluster.
        groups: all of one size G.
        micro_batch: groups that a device scores at once.
        cluster: whose devices share the rows.
        beat: told how many groups are done.
    """
    score = make_scorer(model.frozen, 1.0, cluster)
    adapter, num_rows = place_weights(cluster, model.trained), micro_batch * cluster.num_row_shares
    found: dict[int, Float64[np.ndarray, " G"]] = {}
    for width, members in by_width(groups):
        longest = max(len(response) for number in members for response in groups[number].responses)
        shape = TargetShape(1, len(groups[0].responses), round_up(longest))
        for start in range(0, len(members), num_rows):
            here = members[start : start + num_rows]
            rows = [PackedRow((), [groups[number]]) for number in here]
            batch = pack_rows(rows + [PackedRow((), ())] * (num_rows - len(rows)), shape, width)
            logprobs = np.asarray(of_this_process(cluster, score(adapter, divide_rows(cluster, batch))), np.float64)
            sums = np.where(batch.target_mask, logprobs, 0.0).reshape(num_rows, *shape[1:]).sum(axis=-1)
            found |= dict(zip(here, sums, strict=False))
            beat(len(found))
    return [found[number] for number in range(len(groups))]
