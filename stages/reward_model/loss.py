"""The loss of a reward model, over packed pairs of responses."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32

from stages.engine.data.packing import PackedBatch
from stages.engine.models.config import Remat
from stages.engine.models.dropout import TokenNumbers, make_dropout
from stages.engine.models.families.family import REWARD_HEAD
from stages.engine.models.heads import value_targets
from stages.engine.models.lora import Graph, Weights, bind
from stages.engine.models.reward_head import part_head
from stages.engine.models.transformer import Cells
from stages.engine.objectives.preference import preferred
from stages.engine.objectives.reward_model import bradley_terry, centering
from stages.engine.training.responses import response_sums, sum_over
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
        batch = given.packed.batch
        dropped = make_dropout(batch, given.numbers, dropout, seed)
        decoder, head = part_head(weights)
        values = value_targets(bind(graph, decoder, base, dropped), head[REWARD_HEAD.path], batch, remat)
        rewards = response_sums(values, given.packed, group_size=2)
        chosen, rejected = rewards[..., 0], rewards[..., 1]
        there = jnp.asarray(given.packed.groups) != 0
        preference = sum_over(there, bradley_terry(chosen, rejected, jnp.asarray(given.margins)))
        centred = sum_over(there, centering(chosen, rejected))
        sums = {
            "loss/preference": preference,
            "loss/centering": centred,
            "rewards/chosen": sum_over(there, chosen),
            "rewards/rejected": sum_over(there, rejected),
            "rewards/margin": sum_over(there, chosen - rejected),
            "rewards/accuracy": sum_over(there, preferred(chosen, rejected)),
        }
        return Loss(preference + centering_coef * centred, there.sum().astype(jnp.float32), sums)

    return loss
