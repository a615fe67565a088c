"""Reward models as transformers and PEFT have them, read and written: their rewards against ours."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from stage_trial import TINY, StageTrial, external, stored

from stages.contract import StageInput
from stages.engine.data.batching import Group
from stages.engine.data.tokenizer import load_tokenizer
from stages.engine.data.tokenizer_save import save_tokenizer
from stages.engine.models.config import LoraConfig, TrainedModelConfig
from stages.engine.models.opened import open_model
from stages.engine.models.reward_head import fresh_head
from stages.engine.models.source import load_model, load_trained_model, write_model
from stages.engine.rollout.scoring import RewardScorer
from stages.export.config import ExportConfig

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TOLERANCE = 2e-4
WHOLE = ExportConfig(dtype="float32")
PART = ExportConfig(format="adapter", dtype="float32")
ADAPTED = TrainedModelConfig(lora=LoraConfig(rank=4, alpha=8, targets=("attention",)))
SIZES = {
    "vocab_size": 259,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
}
GEMMA = {"sliding_window": 7, "query_pre_attn_scalar": 12}
FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": {"tie_word_embeddings": False},
    "Qwen2": {"tie_word_embeddings": True},
    "Qwen3": {"tie_word_embeddings": False},
    "Qwen3Moe": {
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 40,
        "norm_topk_prob": True,
        "tie_word_embeddings": False,
    },
    "Gemma2": {**GEMMA, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
    "Gemma3": {**GEMMA, "num_hidden_layers": 7},
}
GROUPS = [Group((5, 6, 7, 8, 9, 200, 31), [(60, 61, 62, 2), (70, 2)]), Group((200, 100), [(9, 9, 9, 9, 9, 9, 9, 9, 2)])]


def make_peer(family: str, folder: Path, kind: str) -> Any:
    """A random model of a class of transformers, which is also written there."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    named = f"{family}Text" if family == "Gemma3" else family
    config = getattr(transformers, f"{named}Config")(**SIZES | FAMILIES[family], num_labels=1, pad_token_id=0)
    torch.manual_seed(3)
    of_class = f"{named if kind == 'SequenceClassification' else family}For{kind}"
    model = getattr(transformers, of_class)(config).eval()
    model.save_pretrained(folder)
    save_tokenizer(folder, load_tokenizer(TINY))
    return model


def own_rewards(folder: Path, model: StageInput) -> np.ndarray:
    loaded = load_model(open_model(trial(folder, model, WHOLE).context(), reward_head="required"))
    return np.concatenate(RewardScorer(loaded.frozen, loaded.trained, group_size=2, micro_batch=2).score(GROUPS))


def rewards_of_peer(peer: Any) -> np.ndarray:
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        return np.array(
            [
                peer(torch.tensor([[*group.prompt, *response]])).logits.item()
                for group in GROUPS
                for response in group.responses
            ]
        )


def check(found: Sequence[float] | np.ndarray, expected: np.ndarray) -> None:
    assert expected.std() > 0.05
    assert np.abs(np.asarray(found) - expected).max() < TOLERANCE


def trial(folder: Path, model: StageInput, config: ExportConfig) -> StageTrial:
    return StageTrial(folder, "export", config, {"model": model})


def trained(folder: Path, base: Path) -> StageInput:
    """A reward model over a base: random adapter and head, as the output of a stage."""
    fresh = load_trained_model(open_model(trial(folder, external(base), WHOLE).context()), ADAPTED, seed=1)
    random = np.random.Generator(np.random.Philox(2))
    adapter = {name: jnp.asarray(random.normal(size=x.shape) * 0.2, jnp.float32) for name, x in fresh.trained.items()}
    content = folder / "checkpoint"
    content.mkdir()
    write_model(content, fresh, {**adapter, **fresh_head(SIZES["hidden_size"], 4)}, ADAPTED)
    return stored(folder, content)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_published_reward_model_gives_the_rewards_that_it_gives_there(tmp_path: Path, family: str) -> None:
    peer = make_peer(family, tmp_path / "peer", "SequenceClassification")
    check(own_rewards(tmp_path, external(tmp_path / "peer")), rewards_of_peer(peer))


@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_reads_an_exported_reward_model(tmp_path: Path, family: str) -> None:
    transformers = pytest.importorskip("transformers")
    make_peer(family, tmp_path / "base", "CausalLM")
    given = trained(tmp_path, tmp_path / "base")
    expected = own_rewards(tmp_path, given)
    folder = trial(tmp_path, given, WHOLE).run().output_dir("model")
    peer, read = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, dtype="float32", local_files_only=True, output_loading_info=True
    )
    assert not read["missing_keys"]
    assert not read["unexpected_keys"]
    assert peer.config.num_labels == 1
    check(rewards_of_peer(peer.eval()), expected)
    # As a published one it is the same model here too.
    check(own_rewards(tmp_path, stored(tmp_path, folder)), expected)


def test_peft_reads_the_adapter_with_its_head(tmp_path: Path) -> None:
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    make_peer("Llama", tmp_path / "base", "CausalLM")
    given = trained(tmp_path, tmp_path / "base")
    folder = trial(tmp_path, given, PART).run().output_dir("model")
    base = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "base", num_labels=1, dtype="float32", local_files_only=True
    )
    expected = own_rewards(tmp_path, given)
    check(rewards_of_peer(peft.PeftModel.from_pretrained(base, folder).eval()), expected)
    check(own_rewards(tmp_path, stored(tmp_path, folder)), expected)
