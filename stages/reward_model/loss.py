"""The loss of a reward model, over packed pairs of responses."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float32

from stages.engine.data.packing import PackedBatch
from stages.engine.models.config import Remat
from stages.engine.models.dropout import Dropout, NumberedBatch, TokenNumbers, token_keys
from stages.engine.models.families.family import REWARD_HEAD
from stages.engine.models.heads import value_targets
from stages.engine.models.lora import Graph, Weights, bind
from stages.engine.models.reward_head import part_head
from stages.engine.models.transformer import Cells
from stages.engine.objectives.aggregation import sequence_sums
from stages.engine.objectives.preference import preferred
from stages.engine.objectives.reward_model import bradley_terry, centering
from stages.engine.training.step import Loss, LossFunction


class RewardBatch(NamedTuple):
    """B rows of up to M pairs.

    Attributes:
        packed: the tokens; each response has one target, which follows its last token.
        margins: of the pairs, in units of rewards.
        numbers: of the tokens, where adapters drop inputs.
    """

    packed: PackedBatch
    margins: Float32[np.ndarray, "B M"] | Float[Array, "B M"]
    numbers: TokenNumbers | None


def make_reward_loss(
    graph: Graph, centering_coef: float, *, remat: Remat = "none", dropout: float = 0.0, seed: int = 0
) -> LossFunction[RewardBatch]:
    """Bradley-Terry and centring: the sum over pairs, and the number of pairs.

    Args:
        graph: of the decoder.
        centering_coef: weight of the centring.
        remat: what the decoder's backward pass computes again.
        dropout: share of their inputs that adapters drop where a batch's tokens are numbered.
        seed: of what is dropped.
    """

    def loss(weights: Weights, base: Cells, given: RewardBatch) -> Loss:
        batch, numbers = given.packed.batch, given.numbers
        numbered = None if numbers is None else NumberedBatch(batch, numbers)
        dropped = None if numbered is None else Dropout(token_keys(seed, numbered), dropout)
        decoder, head = part_head(weights)
        values = value_targets(bind(graph, decoder, base, dropped), head[REWARD_HEAD.path], batch, remat)
        chosen, rejected = _by_pair(values, given.packed)
        there = jnp.asarray(given.packed.groups) != 0
        preference = _sum_over(there, bradley_terry(chosen, rejected, jnp.asarray(given.margins)))
        centred = _sum_over(there, centering(chosen, rejected))
        sums = {
            "loss/preference": preference,
            "loss/centering": centred,
            "rewards/chosen": _sum_over(there, chosen),
            "rewards/rejected": _sum_over(there, rejected),
            "rewards/margin": _sum_over(there, chosen - rejected),
            "rewards/accuracy": _sum_over(there, preferred(chosen, rejected)),
        }
        return Loss(preference + centering_coef * centred, there.sum().astype(jnp.float32), sums)

    return loss


def _by_pair(values: Float[Array, "B R"], packed: PackedBatch) -> tuple[Float[Array, "B M"], Float[Array, "B M"]]:
    """Rewards of chosen and of rejected responses, 0 where there is no pair."""
    rows, max_pairs = packed.groups.shape
    sequences, mask = jnp.asarray(packed.sequences), jnp.asarray(packed.batch.target_mask)
    pairs = sequence_sums(values, sequences, mask, 2 * max_pairs).reshape(rows, max_pairs, 2)
    return pairs[..., 0], pairs[..., 1]


def _sum_over(mask: Bool[Array, "B M"], values: Float[Array, "B M"]) -> Float[Array, ""]:
    return jnp.where(mask, values, 0.0).sum()
