"""Every family against the models of `transformers`, an independent implementation."""

from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from safetensors.numpy import load_file
from stage_trial import TINY

from stages.engine.data.tokenizer import load_tokenizer
from stages.engine.models.attention import tree_mask
from stages.engine.models.cache import Cache, empty_key_value, look_at_responses, look_at_tokens, write_response
from stages.engine.models.lora import Frozen, bind, split
from stages.engine.models.transformer import Cells
from stages.engine.models.weights.load import load_decoder, open_checkpoint, read_weights
from stages.engine.models.weights.save import save_hf
from stages.engine.rollout.native.prefill import Prompts, prefill

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TOLERANCE = 2e-4
VOCAB = 97
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
GEMMA = {"sliding_window": 7, "query_pre_attn_scalar": 12}
NEAR_AND_FAR = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e3},
    "full_attention": {"rope_type": "linear", "rope_theta": 1e5, "factor": 4.0},
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"tie_word_embeddings": False}),
    "llama with long context": ("Llama", {"tie_word_embeddings": True, "rope_parameters": LLAMA3}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"tie_word_embeddings": False}),
    "qwen3_moe": (
        "Qwen3Moe",
        {
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 40,
            "norm_topk_prob": True,
            "tie_word_embeddings": False,
        },
    ),
    "gemma2": ("Gemma2", {**GEMMA, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}),
    "gemma3": ("Gemma3", {**GEMMA, "num_hidden_layers": 7, "rope_parameters": NEAR_AND_FAR}),
}
LENGTHS = (29, 11, 20)
RANDOM = np.random.Generator(np.random.Philox(4))
SEQUENCES = [RANDOM.integers(3, VOCAB, length).tolist() for length in LENGTHS]


@pytest.fixture(scope="module", params=MODELS)
def peer_and_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A random model, with weights large enough that every part of it matters."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    family, changes = MODELS[request.param]
    config = attrgetter(f"{family}TextConfig" if family == "Gemma3" else f"{family}Config")(transformers)
    torch.manual_seed(0)
    model = attrgetter(f"{family}ForCausalLM")(transformers)(config(**{**SIZES, **changes})).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(0.0, 0.5 if weight.ndim == 1 else 2.0 / weight.shape[-1] ** 0.5)
            if name.endswith("norm.weight") and "gemma" not in family.lower():
                weight.add_(1.0)
    folder = tmp_path_factory.mktemp("peer")
    model.save_pretrained(folder)
    return model, folder


@pytest.fixture(scope="module")
def frozen(peer_and_folder: tuple[Any, Path]) -> Frozen:
    return split(load_decoder(peer_and_folder[1]))[0]


@pytest.fixture(scope="module")
def expected(peer_and_folder: tuple[Any, Path]) -> list[np.ndarray]:
    """Logits of each sequence alone."""
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        return [peer_and_folder[0](torch.tensor([ids])).logits[0].numpy() for ids in SEQUENCES]


def logits(frozen: Frozen, tokens: np.ndarray, positions: np.ndarray, segments: np.ndarray) -> np.ndarray:
    @jax.jit
    def run(base: Cells) -> Float[Array, "B T V"]:
        decoder = bind(frozen.graph, {}, base)
        mask = tree_mask(jnp.asarray(segments), jnp.zeros_like(segments))
        hidden, _ = decoder(jnp.asarray(tokens), jnp.asarray(positions), look_at_tokens(mask, jnp.asarray(positions)))
        return decoder.logits(hidden)

    return np.asarray(run(frozen.base))


def test_padded_rows_have_the_logits_of_each_sequence_alone(frozen: Frozen, expected: list[np.ndarray]) -> None:
    width = max(LENGTHS) + 3
    tokens = np.array([[*ids, *[0] * (width - len(ids))] for ids in SEQUENCES], np.int32)
    positions = np.broadcast_to(np.arange(width, dtype=np.int32), tokens.shape)
    segments = np.array([[2] * length + [0] * (width - length) for length in LENGTHS], np.int32)
    found = logits(frozen, tokens, positions, segments)
    for row, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(row[: len(wanted)], wanted, atol=TOLERANCE, rtol=0)


def test_packed_rows_have_the_logits_of_each_sequence_alone(frozen: Frozen, expected: list[np.ndarray]) -> None:
    tokens = np.array([[*chain(*SEQUENCES)]], np.int32)
    positions = np.concatenate([np.arange(length, dtype=np.int32) for length in LENGTHS])[None]
    segments = np.repeat(np.arange(2, 2 + len(LENGTHS), dtype=np.int32), LENGTHS)[None]
    found = logits(frozen, tokens, positions, segments)[0]
    np.testing.assert_allclose(found, np.concatenate(expected), atol=TOLERANCE, rtol=0)


def test_tokens_decoded_one_by_one_have_the_logits_of_the_whole(frozen: Frozen, expected: list[np.ndarray]) -> None:
    prefix, length, width = 3, 5, 8
    steps = LENGTHS[1] - prefix - length
    rows = [ids[: LENGTHS[1]] for ids in SEQUENCES]
    rest = np.array([[*ids[prefix : prefix + length], *[0] * (width - length)] for ids in rows], np.int32)
    tails = np.array([ids[prefix + length :] for ids in rows], np.int32)

    @jax.jit
    def run(base: Cells) -> tuple[Array, Array]:
        decoder = bind(frozen.graph, {}, base)
        lengths = jnp.full(len(rows), length)
        # The rows begin alike here, as prompts of one dataset do: the first one's beginning stands for all.
        read = prefill(decoder, Prompts(jnp.asarray(rows[0][:prefix]), jnp.asarray(rest), lengths))
        cache = Cache(read.prefix, read.rest, empty_key_value(decoder.arch, len(rows), steps, read.rest.key.dtype))
        found = []
        for step in range(steps):
            positions = jnp.full((len(rows), 1), prefix + length + step)
            look = look_at_responses(lengths, jnp.int32(step))
            hidden, new = decoder(jnp.asarray(tails[:, step : step + 1]), positions, look, cache)
            cache = write_response(cache, new, jnp.int32(step))
            found.append(decoder.logits(hidden[:, 0]))
        return decoder.logits(read.last_hidden), jnp.stack(found, axis=1)

    last, found = run(frozen.base)
    np.testing.assert_allclose(last[0], expected[0][prefix + length - 1], atol=TOLERANCE, rtol=0)
    np.testing.assert_allclose(found[0], expected[0][prefix + length : prefix + length + steps], atol=TOLERANCE, rtol=0)


def test_what_is_written_again_has_the_same_tensors_and_logits(
    peer_and_folder: tuple[Any, Path], expected: list[np.ndarray], tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    checkpoint = open_checkpoint(peer_and_folder[1])
    weights = read_weights(checkpoint)
    save_hf(tmp_path, checkpoint.family, checkpoint.arch, weights.items(), load_tokenizer(TINY), max_shard_bytes=60_000)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    original, saved = tensors(peer_and_folder[1]), tensors(tmp_path)
    assert original == saved
    again = type(peer_and_folder[0]).from_pretrained(tmp_path, local_files_only=True).eval()
    assert again.config.dtype == torch.float32
    for ids, wanted in zip(SEQUENCES, expected, strict=True):
        with torch.no_grad():
            np.testing.assert_array_equal(again(torch.tensor([ids])).logits[0].numpy(), wanted)


def tensors(folder: Path) -> dict[str, bytes]:
    """Bytes of every tensor, and the shape before them."""
    return {
        name: repr(value.shape).encode() + value.tobytes()
        for path in folder.glob("*.safetensors")
        for name, value in load_file(path).items()
    }
