"""One optimizer update of a policy on groups of responses."""

from functools import reduce
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Float32

from stages.engine.cluster.mesh import ALONE, Cluster
from stages.engine.cluster.placement import divide_rows
from stages.engine.data.batching import Group
from stages.engine.data.layout import Layout
from stages.engine.models.axes import place_weights
from stages.engine.models.lora import Frozen, Weights
from stages.engine.rl.experience import make_experience
from stages.engine.rl.losses import PolicyBatch, PolicyLoss, make_policy_loss
from stages.engine.rl.rollouts import Rollout
from stages.engine.rollout.scoring import make_scorer
from stages.engine.training.optimizer import UpdateRule
from stages.engine.training.state import OptimizerState
from stages.engine.training.step import Loss, add_gradients, make_gradient, make_update


class Learned(NamedTuple):
    """What an update gives.

    Attributes:
        weights: after the update.
        optimizer: its state after the update.
        loss: of the groups learned from.
        grad_norm: see `Applied`.
        learning_rate: of the update.
    """

    weights: Weights
    optimizer: OptimizerState
    loss: Loss
    grad_norm: Float[Array, ""]
    learning_rate: Float[Array, ""]


class PolicyLearner:
    """Learns from groups of responses against a frozen reference."""

    def __init__(
        self,
        frozen: Frozen,
        reference: Weights,
        settings: PolicyLoss,
        rule: UpdateRule,
        *,
        layout: Layout,
        cluster: Cluster = ALONE,
    ) -> None:
        """Prepares the compiled functions.

        Args:
            frozen: of the policy and the reference, which share their base; it lies on the devices of the cluster.
            reference: adapter of the reference; only a KL term reads it.
            settings: of the loss.
            rule: of the policy's updates.
            layout: of the groups in one backward pass.
            cluster: whose devices share the rows.
        """
        self._cluster = cluster
        self._base = frozen.base
        self._reference = place_weights(cluster, reference)
        self._layout = layout
        self._score = make_scorer(frozen, settings.temperature, cluster) if settings.kl_coef else None
        self._gradient = make_gradient(make_policy_loss(frozen.graph, settings), cluster)
        self._update = make_update(rule, cluster)

    def learn(
        self,
        weights: Weights,
        moments: OptimizerState,
        rollout: Rollout,
        advantages: Float32[np.ndarray, "P G"],
        rows: np.ndarray,
    ) -> Learned:
        """Updates the policy once; weights and optimizer state are overwritten.

        Args:
            weights: of the policy.
            moments: the optimizer's state.
            rollout: sampled responses.
            advantages: of all of them.
            rows: prompts of the rollout to learn from; the others leave the loss and its denominator alone.
        """
        groups = [Group(rollout.prompts[row].ids, rollout.responses.tokens[row]) for row in rows]
        experience = make_experience(groups, rollout.responses.logprobs[rows], advantages[rows], self._layout)
        batches = [
            PolicyBatch(part, self._score(self._reference, part.batch) if self._score else None)
            for part in divide_rows(self._cluster, experience)
        ]
        whole = reduce(add_gradients, (self._gradient(weights, self._base, batch) for batch in batches))
        applied = self._update(weights, moments, whole)
        return Learned(applied.weights, applied.optimizer, whole.loss, applied.grad_norm, applied.learning_rate)
