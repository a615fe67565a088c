"""The decoder against plain numpy, and what its outputs may depend on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jaxtyping import Array, Float
from safetensors.numpy import load_file
from stage_trial import TINY

from stages.engine.models.architecture import Architecture, RopeSettings
from stages.engine.models.attention import tree_mask
from stages.engine.models.cache import look_at_tokens
from stages.engine.models.transformer import Decoder
from stages.engine.models.weights.load import load_decoder

TOLERANCE = 1e-5
TOKENS = np.random.Generator(np.random.Philox(3)).integers(0, 259, (8, 16)).astype(np.int32)


@pytest.fixture(scope="module")
def base() -> Decoder:
    return load_decoder(TINY)


def all_logits(model: Decoder, tokens: np.ndarray) -> Float[Array, "B T V"]:
    """Causal, without padding."""
    graph, weights = nnx.split(model)

    @jax.jit
    def run(weights: nnx.State, tokens: Array) -> Array:
        mask = tree_mask(jnp.ones_like(tokens), jnp.zeros_like(tokens))
        positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
        decoder = nnx.merge(graph, weights)
        hidden, _ = decoder(tokens, positions, look_at_tokens(mask, positions))
        return decoder.logits(hidden)

    return run(weights, jnp.asarray(tokens))


def normed(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.square(x).mean(-1, keepdims=True) + 1e-5) * scale


def rotated(x: np.ndarray) -> np.ndarray:
    """[T, heads, 16] with complex numbers made of the halves of each head."""
    pairs = x[..., :8] + 1j * x[..., 8:]
    angles = np.arange(len(x))[:, None, None] * 10000.0 ** (-np.arange(8) / 8)
    turned = pairs * np.exp(1j * angles)
    return np.concatenate([turned.real, turned.imag], axis=-1)


def plain_logits(tokens: np.ndarray) -> np.ndarray:
    """One sequence in float64."""
    weights = {name: value.astype(np.float64) for name, value in load_file(TINY / "model.safetensors").items()}
    x = weights["model.embed_tokens.weight"][tokens]
    causal = np.tri(len(tokens), dtype=bool)
    for layer in range(2):
        w = {
            name.removeprefix(f"model.layers.{layer}.").removesuffix(".weight"): value
            for name, value in weights.items()
        }
        h = normed(x, w["input_layernorm"])
        q = rotated((h @ w["self_attn.q_proj"].T).reshape(-1, 4, 16))
        k = rotated((h @ w["self_attn.k_proj"].T).reshape(-1, 2, 16)).repeat(2, axis=1)
        v = (h @ w["self_attn.v_proj"].T).reshape(-1, 2, 16).repeat(2, axis=1)
        scores = np.where(causal, np.einsum("qnh,knh->nqk", q, k) / 4.0, -np.inf)
        attention = np.exp(scores - scores.max(-1, keepdims=True))
        attention /= attention.sum(-1, keepdims=True)
        x = x + np.einsum("nqk,knh->qnh", attention, v).reshape(-1, 64) @ w["self_attn.o_proj"].T
        h = normed(x, w["post_attention_layernorm"])
        gate = h @ w["mlp.gate_proj"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w["mlp.up_proj"].T)) @ w["mlp.down_proj"].T
    return normed(x, weights["model.norm.weight"]) @ weights["lm_head.weight"].T


def test_logits_are_those_of_the_formulas_in_plain_numpy(base: Decoder) -> None:
    np.testing.assert_allclose(
        all_logits(base, TOKENS), np.stack([plain_logits(row) for row in TOKENS]), atol=TOLERANCE, rtol=TOLERANCE
    )


def test_a_batch_in_another_order_gives_the_same_bits_in_that_order(base: Decoder) -> None:
    order = [5, 2, 7, 0, 1, 6, 3, 4]
    np.testing.assert_array_equal(all_logits(base, TOKENS[order]), all_logits(base, TOKENS)[np.array(order)])


def test_a_row_gives_the_same_bits_in_a_larger_batch(base: Decoder) -> None:
    np.testing.assert_array_equal(all_logits(base, TOKENS[:4]), all_logits(base, TOKENS)[:4])


@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_model_scores_with_its_embedding_and_another_with_a_matrix_of_its_own(tied: bool) -> None:
    arch = Architecture(
        num_layers=1,
        width=8,
        hidden=8,
        num_heads=2,
        num_kv_heads=1,
        head_size=4,
        vocab_size=11,
        rope=RopeSettings(1e4),
        norm_epsilon=1e-5,
        tied_embeddings=tied,
        max_positions=16,
    )
    model = Decoder(arch, rngs=nnx.Rngs(0))
    hidden = jax.random.normal(jax.random.key(1), (3, 8))
    matrix = model.embed.embedding[...].T if tied else model.lm_head.kernel[...]
    np.testing.assert_allclose(model.logits(hidden), hidden @ matrix, rtol=1e-6)
