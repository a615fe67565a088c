"""What frozen models make of given tokens: log-probabilities, or the rewards of a reward model."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Array, Float, Float32

from stages.engine.cluster.axes import constrain
from stages.engine.cluster.mesh import ALONE, Cluster
from stages.engine.cluster.placement import divide_rows, of_this_process
from stages.engine.cluster.programs import compiled
from stages.engine.data.batching import Batch, Group, by_width
from stages.engine.data.packed_rows import RowShape, lay_out
from stages.engine.data.scored import scored_as_wholes
from stages.engine.models.families.family import REWARD_HEAD
from stages.engine.models.heads import score_targets, value_targets
from stages.engine.models.lora import Frozen, Weights, bind
from stages.engine.models.reward_head import part_head
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


class RewardScorer:
    """Rewards of responses under a frozen reward model.

    A row has one group, and a width that follows from its length, so that a reward does not depend on what else is
    scored, but for rounding.
    """

    def __init__(
        self, frozen: Frozen, weights: Weights, *, group_size: int, micro_batch: int, cluster: Cluster = ALONE
    ) -> None:
        """Compiles nothing yet.

        Args:
            frozen: of the model.
            weights: its trained part and its head.
            group_size: most responses of a group.
            micro_batch: groups that a device scores at once.
            cluster: whose devices share the rows.
        """
        self._frozen = frozen
        self._weights = weights
        self._group_size = group_size
        self._num_rows = micro_batch * cluster.num_row_shares
        self._cluster = cluster
        self._program = compiled(cluster, self._rewards)

    def score(self, groups: Sequence[Group]) -> list[Float32[np.ndarray, " G"]]:
        """The rewards of each group's responses, read off their last tokens."""
        scored = [scored_as_wholes(group) for group in groups]
        found = list[tuple[list[int], Float[Array, "B G"]]]()
        for width, members in by_width(scored):
            for start in range(0, len(members), self._num_rows):
                here = members[start : start + self._num_rows]
                batch = self._batch([scored[number] for number in here], width)
                found.append((here, self._program(self._weights, self._frozen.base, divide_rows(self._cluster, batch))))
        rewards = {
            number: values for here, part in found for number, values in zip(here, self._fetch(part), strict=False)
        }
        return [rewards[number][: len(group.responses)] for number, group in enumerate(groups)]

    def _batch(self, groups: Sequence[Group], width: int) -> Batch:
        rows = [[number] for number in range(len(groups))] + [[]] * (self._num_rows - len(groups))
        return lay_out(rows, groups, RowShape(0, width, self._group_size, self._group_size))[0]

    def _rewards(self, weights: Weights, base: Cells, batch: Batch) -> Float[Array, "B G"]:
        decoder, head = part_head(weights)
        values = value_targets(bind(self._frozen.graph, decoder, base), head[REWARD_HEAD.path], batch)
        return constrain(values, None, None)

    def _fetch(self, part: Float[Array, "B G"]) -> Float32[np.ndarray, "B G"]:
        return np.asarray(of_this_process(self._cluster, part))
