"""An adapter in PEFT's names and layout."""

import json
from itertools import product

import jax.numpy as jnp
import numpy as np
import pytest

from stages.engine.models.config import LoraConfig
from stages.engine.models.lora import Weights
from stages.engine.models.peft import peft_config, peft_weights
from stages.errors import UserError


def test_each_layer_has_its_matrices_as_out_by_in(moved: Weights) -> None:
    found = dict(peft_weights(moved))
    assert len(found) == 2 * 2 * 7
    a, b = (found[f"base_model.model.model.layers.1.mlp.down_proj.lora_{part}.weight"] for part in "AB")
    assert (a.shape, b.shape) == ((3, 128), (64, 3))
    mine = [moved[f"blocks.mlp.down_proj.kernel_lora_{part}"][1] for part in "ab"]
    np.testing.assert_allclose(b @ a, (mine[0] @ mine[1]).T, atol=1e-5)
    assert "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight" in found


def test_the_config_says_how_the_product_is_scaled() -> None:
    lora = LoraConfig(rank=4, alpha=8, targets=("attention",), scaling="rank_stabilized")
    entries = json.loads(peft_config(lora, "org/name").model_dump_json())
    assert entries == {
        "base_model_name_or_path": "org/name",
        "revision": None,
        "r": 4,
        "lora_alpha": 8.0,
        "use_rslora": True,
        "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"],
        "lora_dropout": 0.0,
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "modules_to_save": None,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }


def test_the_config_of_a_reward_model_names_its_head() -> None:
    config = peft_config(LoraConfig(rank=4, alpha=8), "org/name", reward=True)
    assert (config.task_type, config.modules_to_save) == ("SEQ_CLS", ("score",))


EXPERTS = {
    f"blocks.mlp.{name}.kernel_lora_{part}": jnp.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5) / size
    for size, (name, part) in enumerate(product(("gate_proj", "up_proj", "down_proj"), "ab"), start=1)
}


def test_each_expert_has_its_matrices_under_the_names_of_files() -> None:
    found = dict(peft_weights(EXPERTS, mixture=True))
    assert len(found) == 2 * 3 * 6
    np.testing.assert_array_equal(
        found["base_model.model.model.layers.1.mlp.experts.2.down_proj.lora_A.weight"],
        EXPERTS["blocks.mlp.down_proj.kernel_lora_a"][1, 2].T,
    )


def test_over_a_mixture_the_scale_is_told_by_the_rank_and_the_router_has_its_name_of_files() -> None:
    lora = LoraConfig(rank=4, alpha=8, targets=("q_proj", "router"), scaling="rank_stabilized")
    config = peft_config(lora, "org/name", mixture=True)
    assert (config.lora_alpha / config.r, config.use_rslora) == (lora.scale, False)
    assert config.target_modules == ("q_proj", "gate")
    router = {"blocks.mlp.router.kernel_lora_a": jnp.zeros((1, 2, 3))}
    assert [name for name, _ in peft_weights(router, mixture=True)] == [
        "base_model.model.model.layers.0.mlp.gate.lora_A.weight"
    ]


def test_an_adapter_on_one_half_of_what_is_fused_is_refused() -> None:
    half = {name: value for name, value in EXPERTS.items() if "up_proj" not in name}
    with pytest.raises(UserError, match=r"gate_proj and up_proj of experts together.*export the merged model"):
        dict(peft_weights(half, mixture=True))
