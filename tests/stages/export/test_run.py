"""Exports of a trained policy and of a bare base, as other programs find them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from flax import nnx
from hub import write_cache
from huggingface_hub import constants
from safetensors.numpy import load_file, save_file
from stage_trial import TINY, StageTrial, StopAfter, Trained, external, stored

from stages.contract import ARTIFACT_FILE, ModelArtifact, SourceRef, StageInput
from stages.engine.data.tokenizer import load_tokenizer
from stages.engine.models.lora import bind, split
from stages.engine.models.opened import open_model
from stages.engine.models.reward_head import fresh_head, load_head, save_head
from stages.engine.models.source import load_model
from stages.engine.rollout.config import SamplingConfig
from stages.errors import PreemptedError, UserError
from stages.evaluation.config import EvaluationConfig
from stages.export.adapter import write_adapter
from stages.export.config import ExportConfig

pytestmark = pytest.mark.usefixtures("quickly_compiled")

SCALE = 16 / 8
"""Of the trained adapter: alpha over rank."""
WIDTH = 64
"""Of the tiny model."""
SCORING = EvaluationConfig(sampling=SamplingConfig(temperature=0, max_response_tokens=4))


def export(folder: Path, model: StageInput, config: ExportConfig) -> Path:
    return StageTrial(folder, "export", config, {"model": model}).run().output_dir("model")


@pytest.fixture(scope="module")
def merged(trained: Trained) -> Path:
    return export(trained.folder, trained.model, ExportConfig(dtype="float32"))


@pytest.fixture(scope="module")
def adapter(trained: Trained) -> Path:
    return export(trained.folder, trained.model, ExportConfig(format="adapter", dtype="float32"))


def modules(trained: Trained) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """A [in, rank] and B [rank, out] of every adapted layer, by the name that its matrix has in the base's file."""
    tensors = load_file(trained.outputs["checkpoint"] / "adapter.safetensors")
    places = {"attention": "self_attn", "mlp": "mlp"}
    found: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for name, a in tensors.items():
        if name.endswith("kernel_lora_a"):
            _, part, module, _ = name.split(".")
            b = tensors[name.replace("lora_a", "lora_b")]
            for layer in range(len(a)):
                found[f"model.layers.{layer}.{places[part]}.{module}"] = a[layer], b[layer]
    assert len(found) == 2 * 7
    return found


def test_a_merged_model_is_the_base_plus_the_scaled_product_of_the_adapter(trained: Trained, merged: Path) -> None:
    base, written = load_file(TINY / "model.safetensors"), load_file(merged / "model.safetensors")
    assert written.keys() == base.keys()
    adapted = modules(trained)
    for name, tensor in base.items():
        module = name.removesuffix(".weight")
        if module not in adapted:
            assert np.array_equal(written[name], tensor), name
            continue
        a, b = (part.astype(np.float64) for part in adapted[module])
        np.testing.assert_allclose(written[name], tensor + SCALE * (a @ b).T, rtol=0, atol=1e-6)
        assert np.abs(written[name] - tensor).max() > 1e-3, name


def test_its_settings_and_tokenizer_are_those_of_the_base(merged: Path) -> None:
    config, base = (json.loads((folder / "config.json").read_text()) for folder in (merged, TINY))
    assert {name: config[name] for name in base} == base
    tokenizer, own = load_tokenizer(merged), load_tokenizer(TINY)
    assert tokenizer.backend.to_str() == own.backend.to_str()
    assert (tokenizer.eos_ids, tokenizer.chat_template) == (own.eos_ids, own.chat_template)
    assert json.loads((merged / "generation_config.json").read_text())["eos_token_id"] == [2]


def test_equal_inputs_give_equal_bytes(trained: Trained, merged: Path) -> None:
    again = export(trained.folder, trained.model, ExportConfig(dtype="float32"))
    assert {path.name: path.read_bytes() for path in again.iterdir()} == {
        path.name: path.read_bytes() for path in merged.iterdir()
    }


def test_a_type_of_half_the_size_is_rounded_to_once(trained: Trained, merged: Path) -> None:
    half = export(trained.folder, trained.model, ExportConfig(dtype="float16"))
    whole = load_file(merged / "model.safetensors")
    for name, tensor in load_file(half / "model.safetensors").items():
        assert np.array_equal(tensor, whole[name].astype(np.float16)), name
    assert json.loads((half / "config.json").read_text())["dtype"] == "float16"


def test_an_adapter_has_the_names_and_the_layout_of_peft(trained: Trained, adapter: Path) -> None:
    tensors = load_file(adapter / "adapter_model.safetensors")
    expected: dict[str, np.ndarray] = {}
    for module, (a, b) in modules(trained).items():
        expected[f"base_model.model.{module}.lora_A.weight"] = a.T
        expected[f"base_model.model.{module}.lora_B.weight"] = b.T
    assert tensors.keys() == expected.keys()
    assert all(np.array_equal(tensors[name], expected[name]) for name in tensors)


def test_its_settings_name_the_base_and_the_adapted_layers(adapter: Path) -> None:
    config = json.loads((adapter / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["use_rslora"], config["bias"]) == (8, 16, False, "none")
    assert config["base_model_name_or_path"] == str(TINY)
    assert set(config["target_modules"]) == {
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
    }  # fmt: skip
    assert load_tokenizer(adapter).eos_id == 2


def test_a_base_of_the_hub_goes_by_its_name_and_commit(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, checkpoint = "a" * 40, tmp_path / "checkpoint"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    write_cache(tmp_path / "hub", "org/tiny", commit, {path.name: path.read_bytes() for path in TINY.iterdir()})
    shutil.copytree(trained.outputs["checkpoint"], checkpoint)
    artifact = ModelArtifact.model_validate_json((checkpoint / ARTIFACT_FILE).read_text())
    base = SourceRef(uri="hf://org/tiny@main", digest=f"hf:{commit}")
    (checkpoint / ARTIFACT_FILE).unlink()
    (checkpoint / ARTIFACT_FILE).write_text(artifact.model_copy(update={"base": base}).model_dump_json())
    folder = export(tmp_path, stored(tmp_path, checkpoint), ExportConfig(format="adapter"))
    config = json.loads((folder / "adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["revision"]) == ("org/tiny", commit)


def test_either_is_a_model_for_later_stages(trained: Trained, merged: Path, adapter: Path) -> None:
    whole, over_its_base, policy = (
        load_model(open_model(StageTrial(trained.folder, "evaluation", SCORING, {"model": given}).context()))
        for given in (stored(trained.folder, merged), stored(trained.folder, adapter), trained.model)
    )
    assert (whole.opened.artifact.whole, whole.opened.artifact.base, whole.trained) == (True, policy.base, {})
    written = load_file(merged / "model.safetensors")["model.layers.1.mlp.up_proj.weight"]
    weights = split(bind(whole.frozen.graph, {}, whole.frozen.base), nnx.Param)[1]
    assert np.array_equal(weights["blocks.mlp.up_proj.kernel"][1], written.T)
    assert over_its_base.opened.artifact == policy.opened.artifact
    assert all(np.array_equal(over_its_base.trained[name], policy.trained[name]) for name in policy.trained)


def test_a_bare_base_can_be_exported_whole_but_has_no_adapter_to_export(tmp_path: Path) -> None:
    folder = export(tmp_path, external(TINY), ExportConfig(dtype="float32"))
    base, written = load_file(TINY / "model.safetensors"), load_file(folder / "model.safetensors")
    assert all(np.array_equal(written[name], tensor) for name, tensor in base.items())
    artifact = ModelArtifact.model_validate_json((folder / ARTIFACT_FILE).read_text())
    assert artifact.base == external(TINY).source
    with pytest.raises(UserError, match=r"no adapter to export.*format: merged"):
        export(tmp_path, external(TINY), ExportConfig(format="adapter"))


@pytest.fixture
def own_base(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TINY, tmp_path / "base"))


def test_how_the_makers_of_the_base_want_it_sampled_goes_along(own_base: Path, tmp_path: Path) -> None:
    (own_base / "generation_config.json").write_text('{"eos_token_id": [2], "temperature": 0.7}')
    folder = export(tmp_path, external(own_base), ExportConfig())
    assert json.loads((folder / "generation_config.json").read_text())["temperature"] == 0.7


@pytest.mark.parametrize("published", [{"eos_token_id": 5}, {"max_new_tokens": 9}])
def test_a_reply_ends_where_it_was_trained_to_whatever_the_base_says(
    own_base: Path, tmp_path: Path, published: dict[str, int]
) -> None:
    (own_base / "generation_config.json").write_text(json.dumps(published))
    folder = export(tmp_path, external(own_base), ExportConfig())
    ends = [2, 5] if "eos_token_id" in published else [2]
    assert json.loads((folder / "generation_config.json").read_text()) == published | {"eos_token_id": ends}
    assert load_tokenizer(folder).eos_ids == set(ends)


def test_a_weight_beyond_the_range_of_a_type_is_named(own_base: Path, tmp_path: Path) -> None:
    weights = load_file(own_base / "model.safetensors")
    weights["model.norm.weight"][3] = -1e5
    save_file(weights, own_base / "model.safetensors")
    with pytest.raises(UserError, match=r"norm.scale: values reach 100000 and float16 ends at 65504"):
        export(tmp_path, external(own_base), ExportConfig(dtype="float16"))


def test_an_adapter_over_the_text_part_of_a_model_of_text_and_images_is_refused(trained: Trained) -> None:
    trial = StageTrial(trained.folder, "export", ExportConfig(), {"model": trained.model})
    opened = open_model(trial.context())
    opened = replace(opened, checkpoint=replace(opened.checkpoint, text_part=True))
    with pytest.raises(UserError, match=r"text and images.*format: merged"):
        write_adapter(trained.folder, opened, np.float32)


@pytest.mark.parametrize("form", ["adapter", "merged"])
def test_an_adapter_that_is_no_number_is_never_written(
    trained: Trained, tmp_path: Path, form: Literal["adapter", "merged"]
) -> None:
    with pytest.raises(UserError, match=r"blocks\.mlp\.up_proj\.kernel_lora_b.* NaN or infinite values"):
        export(tmp_path, changed(trained, tmp_path, float("nan")), ExportConfig(format=form))


def test_an_adapter_beyond_the_range_of_a_type_is_named(trained: Trained, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"up_proj.kernel_lora_b: values reach 100000 and float16 ends at 65504"):
        export(tmp_path, changed(trained, tmp_path, 1e5), ExportConfig(format="adapter", dtype="float16"))


def changed(trained: Trained, tmp_path: Path, value: float) -> StageInput:
    """The trained policy with one other value in its adapter."""
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(trained.outputs["checkpoint"], checkpoint)
    tensors = load_file(checkpoint / "adapter.safetensors")
    tensors["blocks.mlp.up_proj.kernel_lora_b"][1, 0, 0] = value
    (checkpoint / "adapter.safetensors").unlink()
    save_file(tensors, checkpoint / "adapter.safetensors")
    return stored(tmp_path, checkpoint)


def test_it_stops_between_weights_when_asked_to(tmp_path: Path) -> None:
    trial = StageTrial(tmp_path, "export", ExportConfig(), {"model": external(TINY)})
    with pytest.raises(PreemptedError, match="stopped after 3 of 12 weights"):
        trial.run(StopAfter(4))


@pytest.fixture(scope="module")
def reward_model(trained: Trained) -> StageInput:
    """The trained adapter under a head, as the output of a stage."""
    content = trained.folder / "reward"
    shutil.copytree(trained.outputs["checkpoint"], content)
    head = save_head(content, fresh_head(WIDTH, 3))
    artifact = ModelArtifact.model_validate_json((content / ARTIFACT_FILE).read_text())
    (content / ARTIFACT_FILE).write_text(artifact.model_copy(update={"head": head}).model_dump_json())
    return stored(trained.folder, content)


def test_a_merged_reward_model_has_its_head_in_place_of_the_output_projection(
    trained: Trained, merged: Path, reward_model: StageInput
) -> None:
    written = load_file(export(trained.folder, reward_model, ExportConfig(dtype="float32")) / "model.safetensors")
    plain = load_file(merged / "model.safetensors")
    assert written.keys() == plain.keys() - {"lm_head.weight"} | {"score.weight"}
    np.testing.assert_array_equal(written["score.weight"].T, fresh_head(WIDTH, 3)["value_head.kernel"])
    assert all(np.array_equal(written[name], plain[name]) for name in written if name != "score.weight")


def test_the_adapter_of_a_reward_model_has_its_head_for_peft_and_for_later_stages(
    trained: Trained, adapter: Path, reward_model: StageInput
) -> None:
    folder = export(trained.folder, reward_model, ExportConfig(format="adapter", dtype="float32"))
    head = {"base_model.model.score.weight": np.asarray(fresh_head(WIDTH, 3)["value_head.kernel"]).T}
    expected = load_file(adapter / "adapter_model.safetensors") | head
    found = load_file(folder / "adapter_model.safetensors")
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], expected[name]) for name in found)
    trial = StageTrial(trained.folder, "export", ExportConfig(), {"model": stored(trained.folder, folder)})
    again = load_head(open_model(trial.context(), reward_head="required"))
    np.testing.assert_array_equal(again["value_head.kernel"], fresh_head(WIDTH, 3)["value_head.kernel"])
