"""An adapter in PEFT's names and layout."""

import json

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
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }


def test_an_adapter_on_a_router_is_refused() -> None:
    with pytest.raises(UserError, match=r"blocks\.mlp\.router\.kernel: export the merged model"):
        next(peft_weights({"blocks.mlp.router.kernel_lora_a": jnp.zeros((1, 2, 3))}))
