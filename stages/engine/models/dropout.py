"""Dropout in adapters: masks that follow from what a token is, not from where or with what it is computed."""

from functools import partial
from typing import NamedTuple
from zlib import crc32

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Int32, Integer, Key, UInt32

from stages.engine.data.batching import Batch

DROPOUT = "dropout"
"""Attribute of a block, and of its mixture of experts, that is there where its adapters drop inputs."""

IMPL = "threefry2x32"
"""How numbers follow from keys (PODC 2011), whatever a process prefers."""


class DropoutKeys(nnx.Variable[Key[Array, "*L B T"]]):
    """A key for each token, with a leading layer axis where blocks are stacked; `rate` is the share that is dropped."""

    rate: float


class TokenNumbers(NamedTuple):
    """What tells the tokens of all training apart, together with their branches and positions.

    Attributes:
        update: number of the optimizer update, the same in every row.
        owner: number of the token's group in the update, from 1; 0 where all groups have the token in common.
    """

    update: Int32[np.ndarray, " B"]
    owner: Int32[np.ndarray, "B T"]


class NumberedBatch(NamedTuple):
    """A batch of a training step in which adapters drop inputs."""

    batch: Batch
    numbers: TokenNumbers


class Dropout(NamedTuple):
    """What adapters drop in one run of the decoder.

    Attributes:
        keys: of its tokens, from which a mask for each adapted layer follows.
        rate: share of a layer's inputs.
    """

    keys: Key[Array, "B T"]
    rate: float


def make_dropout(batch: Batch, numbers: TokenNumbers | None, rate: float, seed: int) -> Dropout | None:
    """What adapters drop of a batch; nothing where its tokens have no numbers, as outside of a training step."""
    return None if numbers is None else Dropout(token_keys(seed, NumberedBatch(batch, numbers)), rate)


def token_keys(seed: int, numbered: NumberedBatch) -> Key[Array, "B T"]:
    """A key for each token from counters alone: seed, update, group, branch and position."""
    batch, numbers = numbered
    words = np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32)
    keys = jnp.broadcast_to(jax.random.wrap_key_data(jnp.asarray(words), impl=IMPL), numbers.owner.shape)
    for counters in (numbers.update[:, None], numbers.owner, batch.branch_ids, batch.positions):
        keys = _fold_in(keys, jnp.broadcast_to(jnp.asarray(counters), keys.shape))
    return keys


def layer_keys(keys: Key[Array, "B T"], num_layers: int) -> Key[Array, "L B T"]:
    """Other keys for each layer."""
    shape = (num_layers, *keys.shape)
    layers = jnp.arange(num_layers)[:, None, None]
    return _fold_in(jnp.broadcast_to(keys, shape), jnp.broadcast_to(layers, shape))


def expert_keys(words: UInt32[Array, "N 2"], experts: Int[Array, "N k"]) -> Key[Array, "N k"]:
    """Other keys for each of the experts that a token goes to, from the words of the token's own."""
    keys = jax.random.wrap_key_data(words, impl=IMPL)
    return _fold_in(jnp.broadcast_to(keys[:, None], experts.shape), experts)


def dropout_noise(x: Float[Array, "*N D"], keys: Key[Array, "B T"], rate: float, module: str) -> Float[Array, "*N D"]:
    """What inverted dropout (JMLR 15, 2014) adds to its input: -x where it drops, else x * rate / (1 - rate).

    The N rows of the input are the B T tokens in order. The sum with the input is 0 or x / (1 - rate).
    """
    return masked_noise(x, dropout_mask(keys.reshape(x.shape[:-1]), x.shape[-1], rate, module), rate)


def masked_noise(x: Float[Array, "*N D"], kept: Bool[Array, "*N D"], rate: float) -> Float[Array, "*N D"]:
    """The same for inputs of which it is known which are kept."""
    return x * jnp.where(kept, rate / (1 - rate), -1.0).astype(x.dtype)


def dropout_mask(keys: Key[Array, "*N"], size: int, rate: float, module: str) -> Bool[Array, "*N size"]:
    """Which of a layer's inputs are kept of each token."""
    keys = _fold_in(keys, jnp.full(keys.shape, crc32(module.encode()), jnp.uint32))
    draw = partial(jax.random.bernoulli, p=1 - rate, shape=(size,))
    for _ in keys.shape:
        draw = jax.vmap(draw)
    return draw(keys)


def _fold_in(keys: Key[Array, "..."], numbers: Integer[Array, "..."]) -> Key[Array, "..."]:
    fold = jax.random.fold_in
    # Axis by axis: devices that share rows and tokens could not share them along one axis.
    for _ in keys.shape:
        fold = jax.vmap(fold)
    return fold(keys, numbers)
