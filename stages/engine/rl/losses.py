"""The loss of a policy on its experience."""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from stages.engine.models.config import Remat
from stages.engine.models.heads import score_targets
from stages.engine.models.lora import Graph, Weights, bind
from stages.engine.models.transformer import Cells
from stages.engine.objectives.aggregation import AGGREGATIONS
from stages.engine.objectives.kl import kl_k3
from stages.engine.objectives.policy import clipped_surrogate
from stages.engine.rl.experience import Experience
from stages.engine.training.step import Loss, LossFunction


class PolicyBatch(NamedTuple):
    """Experience, with the reference's log-probabilities of its tokens in nats where a KL term needs them."""

    experience: Experience
    ref_logprobs: Float[Array, "B R"] | None


@dataclass(frozen=True)
class PolicyLoss:
    """Settings of the loss.

    Attributes:
        max_response: slots of each response among a row's targets.
        temperature: of the sampler.
        clip_low: see `clipped_surrogate`.
        clip_high: see `clipped_surrogate`.
        kl_coef: weight of the k3 estimate of KL(policy, reference).
        aggregation: name in `AGGREGATIONS`; a sequence is one response.
        remat: what the backward pass computes again.
    """

    max_response: int
    temperature: float
    clip_low: float
    clip_high: float
    kl_coef: float
    aggregation: str
    remat: Remat = "none"


def make_policy_loss(graph: Graph, settings: PolicyLoss) -> LossFunction[PolicyBatch]:
    """Clipped surrogate plus kl_coef * k3 for each token, aggregated (arXiv 2402.03300, eq. 3)."""
    aggregate = AGGREGATIONS[settings.aggregation]

    def loss(weights: Weights, base: Cells, batch: PolicyBatch) -> Loss:
        experience = batch.experience
        logprobs = score_targets(bind(graph, weights, base), experience.batch, settings.temperature, settings.remat)

        def by_response(per_token: ArrayLike) -> Array:
            return jnp.reshape(per_token, (-1, settings.max_response))

        mask = by_response(experience.batch.target_mask)
        p, old = by_response(logprobs), by_response(experience.old_logprobs)
        per_token, clipped = clipped_surrogate(
            p, old, by_response(experience.advantages), settings.clip_low, settings.clip_high
        )
        parts = {
            "loss/policy": per_token,
            "loss/clipped_rate": clipped.astype(p.dtype),
            "rollout/logprob_gap": jnp.abs(p - old),
        }
        if batch.ref_logprobs is not None:
            parts["loss/kl"] = kl_k3(p, by_response(batch.ref_logprobs))
            per_token = per_token + settings.kl_coef * parts["loss/kl"]
        total, denominator = aggregate(per_token, mask)
        return Loss(total, denominator, {name: aggregate(part, mask)[0] for name, part in parts.items()})

    return loss
