"""Logits and greedy responses against the models of `transformers`, an independent implementation."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from real_models import gemma3_270m, qwen25_coder, smollm2
from stage_trial import TINY

from stages.engine.data.chat import Chat
from stages.engine.data.gguf import open_gguf
from stages.engine.data.gguf_tokenizer import tokenizer_from_gguf
from stages.engine.data.records import Message
from stages.engine.data.tokenizer import Tokenizer, load_tokenizer
from stages.engine.models.cache import look_at_tokens
from stages.engine.models.lora import Frozen, bind, split
from stages.engine.models.transformer import Cells
from stages.engine.models.weights.load import load_decoder, open_checkpoint, read_weights
from stages.engine.models.weights.save import save_hf
from stages.engine.rollout.config import SamplingConfig
from stages.engine.rollout.native.sampler import NativeSampler

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

NUM_TOKENS, NUM_GREEDY = 64, 24
TEXT = (
    "The water of a river that runs from the mountains to the sea is never twice the same; 3 + 4 = 7, and seven "
    "bridges cross it.\n\tdef bridge(n: int) -> str:\n\t\treturn f'{n} metres'  # naïve, 桥\n"
) * 2
QUESTIONS = ("What is 3 + 4?", "What is the capital of France?", "Write one sentence about rivers.")
MODELS: dict[str, tuple[Callable[[], Path], float]] = {
    "tiny": (lambda: TINY, 2e-4),
    "SmolLM2": (smollm2, 1e-3),
    "Gemma 3": (gemma3_270m, 1e-3),
    "Qwen2.5": (qwen25_coder, 1e-3),
}


def peer(path: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    load = partial(transformers.AutoModelForCausalLM.from_pretrained, dtype="float32", local_files_only=True)
    return (load(path.parent, gguf_file=path.name) if path.suffix == ".gguf" else load(path)).eval()


def tokenizer(path: Path) -> Tokenizer:
    if path.suffix == ".gguf":
        return tokenizer_from_gguf(open_gguf(path).metadata, str(path))
    return load_tokenizer(path)


def prompts(tokens: Tokenizer) -> list[list[int]]:
    """By the chat template, or plain text after the start token where a model has none."""
    if tokens.chat_template is not None:
        return [Chat(tokens).prompt_ids([Message(role="user", content=question)]) for question in QUESTIONS]
    start = tokens.backend.token_to_id(tokens.bos_token)
    assert start is not None
    return [[start, *tokens.encode(question)] for question in QUESTIONS]


def logits(frozen: Frozen, ids: list[int]) -> np.ndarray:
    causal = jnp.tri(len(ids), dtype=bool)[None]

    @jax.jit
    def run(base: Cells) -> Float[Array, "T V"]:
        decoder = bind(frozen.graph, {}, base)
        tokens, positions = jnp.array([ids]), jnp.arange(len(ids))[None]
        hidden, _ = decoder(tokens, positions, look_at_tokens(causal, positions))
        return decoder.logits(hidden[0])

    return np.asarray(run(frozen.base))


def logits_of_peer(model: Any, ids: list[int]) -> np.ndarray:
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def greedy_of_peer(model: Any, prompt: list[int], ends: frozenset[int]) -> list[int]:
    torch = pytest.importorskip("torch")
    ids = torch.tensor([prompt])
    with torch.no_grad():
        generated = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=NUM_GREEDY,
            do_sample=False,
            eos_token_id=sorted(ends),
            pad_token_id=0,
        )
    return generated[0, len(prompt) :].tolist()


@pytest.mark.parametrize(("find", "tolerance"), MODELS.values(), ids=MODELS)
def test_logits_and_greedy_responses_are_those_of_transformers(
    find: Callable[[], Path], tolerance: float, tmp_path: Path
) -> None:
    path = find()
    tokens, model = tokenizer(path), peer(path)
    frozen, adapter = split(load_decoder(path))

    ids = tokens.encode(TEXT)[:NUM_TOKENS]
    assert len(ids) == NUM_TOKENS
    expected = logits_of_peer(model, ids)
    assert np.abs(logits(frozen, ids) - expected).max() < tolerance

    asked = prompts(tokens)
    config = SamplingConfig(temperature=0.0, max_response_tokens=NUM_GREEDY)
    sampler = NativeSampler(frozen, tokens.eos_ids, config, group_size=1, micro_batch=3, prompts=asked, seed=0)
    drawn = sampler.sample(adapter, asked, range(len(asked)), step=0)
    responses = [list(response) for (response,) in drawn.tokens]
    assert responses == [greedy_of_peer(model, prompt, tokens.eos_ids) for prompt in asked]
    del model, sampler, frozen

    # What is written as a folder is the same model to transformers as the file that it came from.
    checkpoint = open_checkpoint(path)
    save_hf(tmp_path, checkpoint.family, checkpoint.arch, read_weights(checkpoint).items(), tokens)
    exported = peer(tmp_path)
    np.testing.assert_allclose(logits_of_peer(exported, ids), expected, atol=tolerance, rtol=0)
    assert responses == [greedy_of_peer(exported, prompt, tokens.eos_ids) for prompt in asked]
