"""The loss of learning from preferences, over packed groups of responses."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float32

from stages.dpo.config import WeightedLossConfig
from stages.dpo.terms import Responses, evaluate_term
from stages.engine.data.packing import PackedBatch
from stages.engine.models.config import Remat
from stages.engine.models.dropout import TokenNumbers, make_dropout
from stages.engine.models.heads import score_targets
from stages.engine.models.lora import Graph, Weights, bind
from stages.engine.models.transformer import Cells
from stages.engine.objectives.preference import preferred
from stages.engine.training.responses import response_sums, sum_over
from stages.engine.training.step import Loss, LossFunction


class Scales(NamedTuple):
    """Groups of a whole update over the number of some of its parts, the same in every row; 0 where it has none.

    A sum over a part times its scale, over the number of groups, is the mean over the part: so all means of an update
    have one denominator, in however many micro-batches it is computed.

    Attributes:
        desirable_tokens: target tokens of desirable responses.
        desirable: desirable responses.
        undesirable: the others.
    """

    desirable_tokens: Float32[np.ndarray, " B"]
    desirable: Float32[np.ndarray, " B"]
    undesirable: Float32[np.ndarray, " B"]


class PreferenceBatch(NamedTuple):
    """B rows of up to M groups of G responses.

    Attributes:
        packed: the tokens.
        desirable: which responses are chosen, or labelled as desirable.
        scales: of the update.
        ref_logps: log-probabilities of the responses under the reference, summed over tokens, in nats; 0 where the loss
            has none.
        baseline: of KTO, the same in every row.
        numbers: of the tokens, where adapters drop inputs.
    """

    packed: PackedBatch
    desirable: Bool[np.ndarray, "B M G"]
    scales: Scales
    ref_logps: Float32[np.ndarray, "B M G"] | Float[Array, "B M G"]
    baseline: Float32[np.ndarray, " B"] | Float[Array, " B"]
    numbers: TokenNumbers | None


def make_preference_loss(
    graph: Graph,
    terms: Sequence[WeightedLossConfig],
    group_size: int,
    *,
    remat: Remat = "none",
    dropout: float = 0.0,
    seed: int = 0,
) -> LossFunction[PreferenceBatch]:
    """The weighted sum of some losses: their sum over groups, and the number of groups.

    Args:
        graph: of the decoder.
        terms: what is added up; rewards are those of the first.
        group_size: G, responses of a group: 2 for pairs.
        remat: what the decoder's backward pass computes again.
        dropout: share of their inputs that adapters drop where a batch's tokens are numbered.
        seed: of what is dropped.
    """

    def loss(weights: Weights, base: Cells, batch: PreferenceBatch) -> Loss:
        dropped = make_dropout(batch.packed.batch, batch.numbers, dropout, seed)
        logprobs = score_targets(bind(graph, weights, base, dropped), batch.packed.batch, remat=remat)
        given = Responses(
            logps=response_sums(logprobs, batch.packed, group_size),
            ref_logps=jnp.asarray(batch.ref_logps),
            lengths=response_sums(jnp.ones_like(logprobs), batch.packed, group_size),
            desirable=jnp.asarray(batch.desirable),
            baseline=jnp.asarray(batch.baseline)[0],
            groups_per_token=jnp.asarray(batch.scales.desirable_tokens)[0],
        )
        there = jnp.asarray(batch.packed.groups) != 0
        found = [_evaluate(term, given, there) for term in terms]
        sums = _reward_sums(found[0].rewards, given, batch.scales, there)
        if len(terms) > 1:
            sums |= {f"loss/{term.kind}": value.total for term, value in zip(terms, found, strict=True)}
        if any(term.kind == "kto" for term in terms):
            sums["loss/kto_baseline"] = given.baseline * there.sum()
        total = jnp.stack([value.weighted for value in found]).sum()
        return Loss(total, there.sum().astype(jnp.float32), sums)

    return loss


class _Evaluated(NamedTuple):
    """A term of the sum: its total over groups, that times its weight, and the rewards of responses."""

    total: Float[Array, ""]
    weighted: Float[Array, ""]
    rewards: Float[Array, "B M G"]


def _evaluate(term: WeightedLossConfig, given: Responses, there: Bool[Array, "B M"]) -> _Evaluated:
    losses, rewards = evaluate_term(term.loss, given)
    total = sum_over(there, losses)
    return _Evaluated(total, term.weight * total, rewards)


def _reward_sums(
    rewards: Float[Array, "B M G"], given: Responses, scales: Scales, there: Bool[Array, "B M"]
) -> dict[str, Float[Array, ""]]:
    """Means over chosen and rejected, or over desirable and undesirable responses, as sums over groups."""
    parts = (("chosen", given.desirable, scales.desirable), ("rejected", ~given.desirable, scales.undesirable))
    sums: dict[str, Float[Array, ""]] = {}
    for name, wanted, scale in parts:
        mask = there[:, :, None] & wanted
        for quantity, values in (("rewards", rewards), ("logps", given.logps)):
            sums[f"{quantity}/{name}"] = sum_over(mask, values) * jnp.asarray(scale)[0]
    sums["rewards/margin"] = sums["rewards/chosen"] - sums["rewards/rejected"]
    if rewards.shape[-1] == 2:
        sums["rewards/accuracy"] = sum_over(there, preferred(rewards[..., 0], rewards[..., 1]))
    return sums
