"""Exports as other programs read them: transformers, PEFT and vLLM against the model that was exported."""

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from stage_trial import TINY, StageTrial, external, stored

from stages.contract import Quantization, StageInput
from stages.engine.data.tokenizer import load_tokenizer
from stages.engine.data.tokenizer_save import save_tokenizer
from stages.engine.models.cache import look_at_tokens
from stages.engine.models.config import LoraConfig, TrainedModelConfig
from stages.engine.models.lora import Weights, bind
from stages.engine.models.opened import open_model
from stages.engine.models.source import load_model, load_trained_model, write_model
from stages.engine.models.transformer import Cells
from stages.export.config import ExportConfig

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[3]
VLLM = ROOT / ".venv-vllm" / "bin" / "python"
QUIETLY = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}
TOLERANCE = 2e-4
WHOLE, PART = ExportConfig(dtype="float32"), ExportConfig(format="adapter", dtype="float32")
SIZES = {
    "vocab_size": 259,
    "hidden_size": 128,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": {"tie_word_embeddings": False},
    "Qwen2": {"tie_word_embeddings": True},
    "Gemma3": {"sliding_window": 4, "query_pre_attn_scalar": 32, "num_hidden_layers": 7},
    "Qwen3Moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": True},
}
ALL = LoraConfig(rank=4, alpha=8)
ATTENTION = LoraConfig(rank=4, alpha=2, targets=("attention",), scaling="rank_stabilized")
EVERYWHERE = LoraConfig(rank=4, alpha=2, targets=("all", "router"), scaling="rank_stabilized")
PROMPTS = [[5, 6, 7, 8, 9, 200, 31], [200, 100, 50]]
LENGTH, NUM_NEW = 24, 12


class Policy(NamedTuple):
    """A random model with a random adapter.

    Attributes:
        folder: where stages run.
        base: of the model, as transformers wrote it.
        given: the model as the input of a stage.
        logits: of each token, under the adapter.
    """

    folder: Path
    base: Path
    given: StageInput
    logits: Callable[[Sequence[int]], np.ndarray]


def make_policy(folder: Path, family: str, lora: LoraConfig, quantization: Quantization | None = None) -> Policy:
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    torch.manual_seed(3)
    named = f"{family}Text" if family.startswith("Gemma3") else family
    config = getattr(transformers, f"{named}Config")(**SIZES | FAMILIES[family])
    base, checkpoint = folder / "base", folder / "checkpoint"
    getattr(transformers, f"{family}ForCausalLM")(config).save_pretrained(base)
    save_tokenizer(base, load_tokenizer(TINY))
    settings = TrainedModelConfig(lora=lora, quantization=quantization)
    fresh = load_trained_model(open_model(trial(folder, external(base), WHOLE).context()), settings, seed=1)
    random = np.random.Generator(np.random.Philox(2))
    adapter = {name: jnp.asarray(random.normal(size=x.shape) * 0.2, jnp.float32) for name, x in fresh.trained.items()}
    checkpoint.mkdir()
    write_model(checkpoint, fresh, adapter, settings)
    given = stored(folder, checkpoint)
    return Policy(folder, base, given, own_logits(trial(folder, given, WHOLE)))


def trial(folder: Path, model: StageInput, config: ExportConfig) -> StageTrial:
    return StageTrial(folder, "export", config, {"model": model})


def own_logits(of: StageTrial) -> Callable[[Sequence[int]], np.ndarray]:
    model = load_model(open_model(of.context()))
    causal, positions = jnp.tri(LENGTH, dtype=bool)[None], jnp.arange(LENGTH)[None]

    @jax.jit
    def run(adapter: Weights, base: Cells, tokens: Array) -> Float[Array, "T V"]:
        decoder = bind(model.frozen.graph, adapter, base)
        hidden, _ = decoder(tokens, positions, look_at_tokens(causal, positions))
        return decoder.logits(hidden[0])

    def logits(ids: Sequence[int]) -> np.ndarray:
        padded = jnp.array([[*ids, *[0] * (LENGTH - len(ids))]])
        return np.asarray(run(model.trained, model.frozen.base, padded))[: len(ids)]

    return logits


@pytest.fixture(scope="module", params=FAMILIES)
def policy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Policy:
    return make_policy(tmp_path_factory.mktemp("policy"), request.param, ALL)


def exported(policy: Policy, config: ExportConfig) -> Path:
    return trial(policy.folder, policy.given, config).run().output_dir("model")


def peer_of(folder: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="float32", local_files_only=True).eval()


def check_logits(policy: Policy, peer: Any) -> None:
    torch = pytest.importorskip("torch")
    for ids in PROMPTS:
        with torch.no_grad():
            found = peer(torch.tensor([ids])).logits[0].numpy()
        assert np.abs(found - policy.logits(ids)).max() < TOLERANCE


def test_transformers_reads_the_merged_model_with_its_tokenizer(policy: Policy) -> None:
    transformers = pytest.importorskip("transformers")
    folder = exported(policy, WHOLE)
    check_logits(policy, peer_of(folder))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    chat = [{"role": "user", "content": "3 + 4?"}]
    shown = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert tokenizer.encode(shown, add_special_tokens=False) == load_tokenizer(TINY).encode(shown)
    assert transformers.GenerationConfig.from_pretrained(folder).eos_token_id == [2]


@pytest.mark.parametrize("family", ["Llama", "Qwen3Moe"])
def test_a_policy_over_a_base_in_few_bits_is_merged_into_what_the_bits_stand_for(family: str, tmp_path: Path) -> None:
    policy = make_policy(tmp_path, family, ALL, Quantization(kind="nf4", tile_size=32))
    check_logits(policy, peer_of(exported(policy, WHOLE)))


def test_peft_reads_the_adapter_over_the_base(policy: Policy) -> None:
    peft, base = pytest.importorskip("peft"), peer_of(policy.base)
    with pytest.raises(AssertionError):
        check_logits(policy, base)
    check_logits(policy, peft.PeftModel.from_pretrained(base, exported(policy, PART)).eval())


def test_peft_finds_the_base_by_its_name_and_scales_by_the_root_of_the_rank(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    policy = make_policy(tmp_path, "Llama", ATTENTION)
    check_logits(policy, peft.AutoPeftModelForCausalLM.from_pretrained(exported(policy, PART), dtype="float32").eval())


def test_peft_scales_adapters_of_experts_and_router_by_the_root_of_the_rank(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    policy = make_policy(tmp_path, "Qwen3Moe", EVERYWHERE)
    check_logits(policy, peft.PeftModel.from_pretrained(peer_of(policy.base), exported(policy, PART)).eval())


def test_vllm_answers_as_the_merged_model_does(policy: Policy) -> None:
    if not VLLM.exists():
        pytest.skip("`make test-slow` makes .venv-vllm")
    script = Path(__file__).parents[2] / "probe" / "vllm_greedy.py"
    command = [str(VLLM), str(script), str(exported(policy, WHOLE)), str(NUM_NEW), json.dumps(PROMPTS)]
    ran = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **QUIETLY}, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert json.loads(ran.stdout.splitlines()[-1]) == [greedy(policy, prompt) for prompt in PROMPTS]


def greedy(policy: Policy, prompt: Sequence[int]) -> list[int]:
    ids = list(prompt)
    for _ in range(NUM_NEW):
        ids.append(int(policy.logits(ids)[-1].argmax()))
    return ids[len(prompt) :]
