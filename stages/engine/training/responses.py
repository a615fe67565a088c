"""Sums over packed responses and over groups, of which losses are made."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from stages.engine.data.packing import PackedBatch
from stages.engine.objectives.aggregation import sequence_sums


def response_sums(values: Float[Array, "B R"], packed: PackedBatch, group_size: int) -> Float[Array, "B M G"]:
    """Sums of values of targets over each response; 0 where there is none."""
    rows, max_groups = packed.groups.shape
    mask, sequences = jnp.asarray(packed.batch.target_mask), jnp.asarray(packed.sequences)
    return sequence_sums(values, sequences, mask, max_groups * group_size).reshape(rows, max_groups, group_size)


def sum_over(mask: Bool[Array, "*B"], values: Float[Array, "*B"]) -> Float[Array, ""]:
    """The sum where the mask is set, whatever the values are elsewhere."""
    return jnp.where(mask, values, 0.0).sum()
