"""Grouped-query attention: the projections, and attention under a mask."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from stages.engine.cluster.axes import constrain
from stages.engine.data.batching import ROOT
from stages.engine.models.architecture import Architecture
from stages.engine.models.fused_attention import masked_attention
from stages.engine.models.norm import RmsNorm
from stages.engine.models.rope import Rope, rotate
from stages.engine.models.tokens import along_one_axis

MASKED = -1e30
"""Score of a key that must not be seen; finite, so that a row without any key stays finite."""


class KeyValue(NamedTuple):
    """Keys and values of one layer, or of all layers with a leading axis."""

    key: Float[Array, "*L B T K H"]
    value: Float[Array, "*L B T K H"]


def tree_mask(segment_ids: Int[Array, "B T"], branch_ids: Int[Array, "B T"]) -> Bool[Array, "B T T"]:
    """Who sees whom, queries by keys: see `Batch`. Padding sees itself, so that its softmax is defined."""
    index = jnp.arange(segment_ids.shape[1])
    causal = index[:, None] >= index[None, :]
    key_segment, key_branch = segment_ids[:, None, :], branch_ids[:, None, :]
    same_segment = (key_segment == ROOT) | (key_segment == segment_ids[:, :, None])
    same_branch = (key_branch == 0) | (key_branch == branch_ids[:, :, None])
    real = (segment_ids != 0)[:, :, None]
    return jnp.where(real, causal & same_segment & same_branch, index[:, None] == index[None, :])


class Part(NamedTuple):
    """Keys and values that queries meet, with who may see them.

    Rows may share keys: with C rows of keys, each serves B / C consecutive rows of queries and is never copied.

    Attributes:
        key: of C rows.
        value: of C rows.
        mask: whom a layer lets see each other that sees everything.
        positions: of the keys; a layer with a window asks how far they are from the query.
    """

    key: Float[Array, "C S K H"]
    value: Float[Array, "C S K H"]
    mask: Bool[Array, "#B #T S"]
    positions: Int[Array, "#B S"]


Look = Callable[[Float[Array, "B T K H"], Float[Array, "B T K H"]], Sequence[Part]]
"""From the tokens' own keys and values to all that their queries may meet, in one layer."""


@dataclass(frozen=True)
class Scoring:
    """How a layer scores keys.

    Attributes:
        scale: multiplies the dot products.
        soft_cap: c in c * tanh(score / c).
    """

    scale: float
    soft_cap: float | None = None


def within_window(parts: Sequence[Part], positions: Int[Array, "B T"], window: Int[Array, ""]) -> list[Part]:
    """The parts, of which a query sees only the keys fewer than `window` positions before its own."""
    return [
        part._replace(mask=part.mask & (positions[:, :, None] - part.positions[:, None, :] < window)) for part in parts
    ]


def attend_parts(q_BTNH: Float[Array, "B T N H"], parts: Sequence[Part], scoring: Scoring) -> Float[Array, "B T N H"]:
    """Softmax attention over all parts together, as if their keys stood in one sequence; a part may be empty."""
    parts = [part for part in parts if part.key.shape[1]]
    if len(parts) == 1 and parts[0].key.shape[0] == q_BTNH.shape[0] and scoring.soft_cap is None:
        return masked_attention(q_BTNH, parts[0].key, parts[0].value, parts[0].mask, scoring.scale)
    masked = [jnp.where(part.mask[:, None, None], _scores(q_BTNH, part.key, scoring), MASKED) for part in parts]
    weights = jax.nn.softmax(jnp.concatenate(masked, axis=-1), axis=-1).astype(q_BTNH.dtype)
    ends = list(accumulate(part.key.shape[1] for part in parts))
    pieces = jnp.split(weights, ends[:-1], axis=-1)
    mixed = [_mix(piece, part.value) for piece, part in zip(pieces, parts, strict=True)]
    return reduce(jnp.add, mixed).reshape(q_BTNH.shape)


def _scores(
    q_BTNH: Float[Array, "B T N H"], k_CSKH: Float[Array, "C S K H"], scoring: Scoring
) -> Float[Array, "B K R T S"]:
    """Scaled dot products in float32; R = N / K query heads share one key head."""
    batch, length, _, size = q_BTNH.shape
    shared, keys, kv_heads, _ = k_CSKH.shape
    q_CGTKRH = q_BTNH.reshape(shared, batch // shared, length, kv_heads, -1, size)
    dots = jnp.einsum("CGTKRH,CSKH->CGKRTS", q_CGTKRH, k_CSKH, preferred_element_type=jnp.float32)
    out = (dots * scoring.scale).reshape(batch, kv_heads, -1, length, keys)
    return out if scoring.soft_cap is None else scoring.soft_cap * jnp.tanh(out / scoring.soft_cap)


def _mix(weights_BKRTS: Float[Array, "B K R T S"], v_CSKH: Float[Array, "C S K H"]) -> Float[Array, "B T K R H"]:
    """Weighted sum of values."""
    shared = v_CSKH.shape[0]
    weights_CGKRTS = weights_BKRTS.reshape(shared, -1, *weights_BKRTS.shape[1:])
    out = jnp.einsum("CGKRTS,CSKH->CGTKRH", weights_CGKRTS, v_CSKH)
    return out.reshape(-1, *out.shape[2:])


class Attention(nnx.Module):
    """The four projections around attention, and the norms of queries and keys where the family has them."""

    def __init__(self, arch: Architecture, *, rngs: nnx.Rngs) -> None:
        queries, keys = arch.num_heads * arch.head_size, arch.num_kv_heads * arch.head_size
        self.head_size = arch.head_size
        self.scoring = Scoring(arch.query_scale or arch.head_size**-0.5, arch.attention_soft_cap)
        self.q_proj = nnx.Linear(arch.width, queries, use_bias=arch.qkv_bias, rngs=rngs)
        self.k_proj = nnx.Linear(arch.width, keys, use_bias=arch.qkv_bias, rngs=rngs)
        self.v_proj = nnx.Linear(arch.width, keys, use_bias=arch.qkv_bias, rngs=rngs)
        self.o_proj = nnx.Linear(queries, arch.width, use_bias=False, rngs=rngs)
        if arch.qk_norm:
            self.q_norm = RmsNorm(arch.head_size, epsilon=arch.norm_epsilon, offset=arch.norm_offset)
            self.k_norm = RmsNorm(arch.head_size, epsilon=arch.norm_epsilon, offset=arch.norm_offset)
        self.qk_norm = arch.qk_norm

    def __call__(self, x_BTD: Float[Array, "B T D"], rope: Rope, look: Look) -> tuple[Float[Array, "B T D"], KeyValue]:
        """Returns the block's output and the tokens' own keys and values."""
        shape = (*x_BTD.shape[:2], -1, self.head_size)
        x = along_one_axis(x_BTD)
        q, k = self.q_proj(x).reshape(shape), self.k_proj(x).reshape(shape)
        if self.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = rotate(q, rope), rotate(k, rope), self.v_proj(x).reshape(shape)
        # Devices that have different tokens of a row need the keys and values of all of them.
        q = constrain(q, "rows", "tokens", "heads", None)
        k, v = (constrain(each, "rows", None, "kv_heads", None) for each in (k, v))
        out = attend_parts(q, look(k, v), self.scoring)
        out = self.o_proj(along_one_axis(out.reshape(*out.shape[:2], -1)))
        return out.reshape(x_BTD.shape), KeyValue(k, v)
