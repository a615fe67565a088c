"""What the policy is compared with: the reference's log-probabilities, of each step or computed before the first."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stages.contract import StageContext
from stages.dpo.config import DpoConfig
from stages.dpo.precomputed import precompute
from stages.dpo.scoring import Candidates, Reference, ScoreResponses, Sums, make_response_scorer
from stages.engine.cluster.mesh import Cluster
from stages.engine.data.packing import PackedBatch, spread
from stages.engine.data.same_tokens import check_same_tokens
from stages.engine.models.axes import place_weights
from stages.engine.models.opened import OpenedModel, open_model
from stages.engine.models.source import LoadedModel, load_model
from stages.errors import UserError

INPUT = "reference"
"""Name of the optional input."""

RefLogps = Callable[[Sequence[int], Sequence[PackedBatch]], Sequence[Sums]]
"""From rows of a dataset and the micro-batches that they were packed into to each micro-batch's sums."""


def open_reference(context: StageContext, config: DpoConfig, opened: OpenedModel) -> OpenedModel | None:
    """Another model that the trained one is compared with, if one is given.

    Raises:
        UserError: one is given that the loss does not read, or that has another tokenizer.
    """
    if not context.has_input(INPUT):
        return None
    if not config.needs_reference:
        raise UserError(f"a loss of kind {config.loss.kind} has no reference; take out the input `{INPUT}`")
    reference = open_model(context, INPUT)
    check_same_tokens(opened.tokenizer, reference.tokenizer, INPUT)
    return reference


@dataclass(frozen=True)
class Comparison:
    """How a run finds its reference's log-probabilities.

    Attributes:
        context: of the stage.
        config: its settings.
        policy: as it begins, which is the reference where no other is given.
        score: of the policy.
        other: another reference.
        group_size: G, responses of a group.
        cluster: whose devices share the work.
    """

    context: StageContext
    config: DpoConfig
    policy: LoadedModel
    score: ScoreResponses
    other: OpenedModel | None
    group_size: int
    cluster: Cluster

    def with_reference(self, given: Candidates) -> RefLogps:
        """For the responses of a dataset, of which all that is looked up later is computed now."""
        if self.config.reference_logprobs == "each_step":
            reference = self._reference
            return lambda _, batches: [reference.score(reference.weights, packed) for packed in batches]
        table = precompute(self.context, lambda: self._reference, self._identity(), given, self.cluster)
        return lambda rows, batches: [spread(packed, table[np.array(rows)]) for packed in batches]

    @cached_property
    def _reference(self) -> Reference:
        if self.other is None:
            return Reference(self.score, place_weights(self.cluster, self.policy.trained))
        loaded = load_model(self.other, self.cluster)
        score = make_response_scorer(loaded.frozen, self.group_size, self.cluster)
        return Reference(score, place_weights(self.cluster, loaded.trained))

    def _identity(self) -> str:
        """Says which weights the reference has: the input's content, and how its base is kept."""
        if self.other is None:
            how = self.config.model.model_dump_json(exclude={"remat"})
            return f"{self.context.input('model').model_dump_json()} {how}"
        return self.context.input(INPUT).model_dump_json()
