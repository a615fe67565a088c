"""Model inputs of a stage: a published base, or what an earlier stage trained over it."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from made_stages import PROVENANCE
from safetensors.numpy import load_file, save_file
from stage_trial import TINY, StageTrial, external, stored

from stages.contract import ARTIFACT_FILE, ModelArtifact, Quantization, StageInput, StoredBase, StoredInput
from stages.engine.data.tokenizer import load_tokenizer
from stages.engine.models.config import LoraConfig, TrainedModelConfig
from stages.engine.models.lora import Weights, bind, save_adapter
from stages.engine.models.opened import open_model
from stages.engine.models.paths import dotted
from stages.engine.models.source import LoadedModel, load_model, load_trained_model, write_model
from stages.engine.models.weights.load import open_checkpoint, read_weights
from stages.engine.models.weights.save import save_hf
from stages.engine.rollout.config import SamplingConfig
from stages.errors import UserError
from stages.evaluation.config import EvaluationConfig
from stages.store.manifest import Manifest
from stages.store.records import write_record

pytestmark = pytest.mark.usefixtures("quickly_compiled")

LORA = LoraConfig(rank=3, alpha=6)
NF4 = Quantization(kind="nf4", tile_size=32)
CONFIG = EvaluationConfig(sampling=SamplingConfig(temperature=0.0, max_response_tokens=1))


def adapted(quantization: Quantization | None = None, **changed: object) -> TrainedModelConfig:
    return TrainedModelConfig(lora=LORA.model_copy(update=changed), quantization=quantization)


def trial(folder: Path, model: StageInput) -> StageTrial:
    return StageTrial(folder, "evaluation", CONFIG, {"model": model})


@pytest.fixture
def checkpoint(tmp_path: Path, tiny: LoadedModel, moved: Weights) -> StageInput:
    content = tmp_path / "checkpoint"
    content.mkdir()
    artifact = ModelArtifact(base=tiny.base, adapter=save_adapter(content, moved, LORA))
    (content / ARTIFACT_FILE).write_text(artifact.model_dump_json())
    return stored(tmp_path, content)


def test_a_base_is_loaded_with_its_tokenizer_and_template(tmp_path: Path) -> None:
    model = load_model(open_model(trial(tmp_path, external(TINY)).context()))
    assert model.trained == {}
    assert model.base == external(TINY).source
    assert model.chat.tokenizer.decode([model.chat.end_id], skip_special=False) == "<|im_end|>"


def test_an_earlier_stages_adapter_is_loaded_over_the_same_base(
    tmp_path: Path, checkpoint: StageInput, tiny: LoadedModel, moved: Weights
) -> None:
    loaded = load_model(open_model(trial(tmp_path, checkpoint).context()))
    assert loaded.base == tiny.base
    assert loaded.trained.keys() == moved.keys()
    assert all(np.array_equal(loaded.trained[name], moved[name]) for name in moved)


def test_training_goes_on_with_the_adapter_of_the_input(tmp_path: Path, checkpoint: StageInput, moved: Weights) -> None:
    loaded = load_trained_model(open_model(trial(tmp_path, checkpoint).context()), adapted(), seed=99)
    assert all(np.array_equal(loaded.trained[name], moved[name]) for name in moved)


def test_layers_may_be_named_in_another_order_than_before(
    tmp_path: Path, checkpoint: StageInput, moved: Weights
) -> None:
    config = adapted(targets=("down_proj", "up_proj", "gate_proj", "o_proj", "v_proj", "k_proj", "q_proj"))
    loaded = load_trained_model(open_model(trial(tmp_path, checkpoint).context()), config, seed=0)
    assert all(np.array_equal(loaded.trained[name], moved[name]) for name in moved)


def test_a_fresh_adapter_is_that_of_its_seed(tmp_path: Path, tiny: LoadedModel) -> None:
    same, other = (
        load_trained_model(open_model(trial(tmp_path, external(TINY)).context()), adapted(), seed) for seed in (1, 2)
    )
    assert all(np.array_equal(same.trained[name], tiny.trained[name]) for name in tiny.trained)
    name = "blocks.mlp.up_proj.kernel_lora_a"
    assert not np.array_equal(other.trained[name], tiny.trained[name])


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (adapted(rank=4), "`model` asks for rank 4, alpha 6 on q_proj"),
        (adapted(alpha=5.0), "`model` asks for rank 3, alpha 5 on q_proj"),
        (adapted(targets=("v_proj",)), "`model` asks for rank 3, alpha 6 on v_proj."),
        (adapted(scaling="rank_stabilized"), "`model` asks for rank 3, alpha 6, rank-stabilized, on q_proj"),
        (adapted(NF4), "down_proj over a base in nf4 with tiles of 32."),
    ],
)
def test_training_with_other_settings_than_the_inputs_adapter_is_refused_with_both(
    tmp_path: Path, checkpoint: StageInput, config: TrainedModelConfig, words: str
) -> None:
    with pytest.raises(UserError, match=re.escape(words)) as raised:
        load_trained_model(open_model(trial(tmp_path, checkpoint).context()), config, seed=0)
    assert "input `model` has an adapter with rank 3, alpha 6 on q_proj, k_proj" in str(raised.value)


def test_layers_that_a_model_lacks_are_named_before_its_weights_are_read(tmp_path: Path) -> None:
    base = Path(shutil.copytree(TINY, tmp_path / "base"))
    weights = load_file(base / "model.safetensors")
    weights["model.norm.weight"][0] = np.nan
    save_file(weights, base / "model.safetensors")
    with pytest.raises(UserError, match=r"model\.lora\.targets: router"):
        load_trained_model(open_model(trial(tmp_path, external(base)).context()), adapted(targets=("router",)), seed=0)


def test_a_folder_that_holds_no_model_is_refused(tmp_path: Path) -> None:
    content = tmp_path / "other"
    content.mkdir()
    (content / ARTIFACT_FILE).write_text('{"kind": "dataset", "num_rows": 3}')
    with pytest.raises(UserError, match=r"input `model`: .* holds no model"):
        load_model(open_model(trial(tmp_path, stored(tmp_path, content)).context()))


def test_an_adapter_is_used_over_its_base_quantised_as_it_was_in_training(
    tmp_path: Path, tiny: LoadedModel, moved: Weights
) -> None:
    content = tmp_path / "checkpoint"
    content.mkdir()
    write_model(content, tiny, moved, adapted(NF4))
    checkpoint = stored(tmp_path, content)
    trained = load_trained_model(open_model(trial(tmp_path, external(TINY)).context()), adapted(NF4), seed=1)
    name = "blocks.mlp.up_proj.kernel.array.qvalue"
    for loaded in (
        load_model(open_model(trial(tmp_path, checkpoint).context())),
        load_trained_model(open_model(trial(tmp_path, checkpoint).context()), adapted(NF4), seed=2),
    ):
        found, expected = (
            {dotted(path): leaf.get_value() for path, leaf in base.flat_state()}
            for base in (loaded.frozen.base, trained.frozen.base)
        )
        assert found[name].dtype == "uint4"
        assert all(np.array_equal(found[path].astype(float), expected[path].astype(float)) for path in expected)
        assert all(np.array_equal(loaded.trained[path], moved[path]) for path in moved)


def test_the_artifact_of_an_earlier_release_is_read(tmp_path: Path, tiny: LoadedModel, moved: Weights) -> None:
    content = tmp_path / "checkpoint"
    content.mkdir()
    write_model(content, tiny, moved, adapted())
    artifact = json.loads((content / ARTIFACT_FILE).read_text())
    del artifact["adapter"]["scaling"], artifact["adapter"]["quantization"]
    (content / ARTIFACT_FILE).write_text(json.dumps(artifact))
    loaded = load_trained_model(open_model(trial(tmp_path, stored(tmp_path, content)).context()), adapted(), seed=2)
    assert all(np.array_equal(loaded.trained[path], moved[path]) for path in moved)


def test_a_whole_model_of_an_earlier_stage_is_loaded_from_its_folder(tmp_path: Path, tiny: LoadedModel) -> None:
    model = load_model(open_model(trial(tmp_path, whole_model(tmp_path)).context()))
    assert model.opened.artifact.base == tiny.base
    assert model.trained == {}
    embedding = bind(model.frozen.graph, {}, model.frozen.base).embed.embedding[...]
    original = bind(tiny.frozen.graph, tiny.trained, tiny.frozen.base).embed.embedding[...]
    np.testing.assert_array_equal(embedding, 2 * original)


def test_a_model_without_a_chat_template_loads_until_one_is_asked_for(tmp_path: Path) -> None:
    folder = shutil.copytree(TINY, tmp_path / "base", copy_function=shutil.copy)
    settings = folder / "tokenizer_config.json"
    without = {name: value for name, value in json.loads(settings.read_text()).items() if name != "chat_template"}
    settings.write_text(json.dumps(without))
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    model = load_model(open_model(trial(tmp_path, external(folder)).context()))
    with pytest.raises(UserError, match="the model has no chat template"):
        _ = model.chat


def whole_model(folder: Path) -> StageInput:
    """The tiny model with an embedding of twice the size, as an output of a stage."""
    content = folder / "whole"
    content.mkdir()
    checkpoint = open_checkpoint(TINY)
    weights = read_weights(checkpoint)
    weights["embed.embedding"] = 2 * weights["embed.embedding"]
    save_hf(content, checkpoint.family, checkpoint.arch, weights.items(), load_tokenizer(TINY))
    artifact = ModelArtifact(base=external(TINY).source, whole=True)
    (content / ARTIFACT_FILE).write_text(artifact.model_dump_json())
    return stored(folder, content)


def test_an_adapter_over_a_whole_model_of_the_store_finds_that_model_again(tmp_path: Path, moved: Weights) -> None:
    whole = whole_model(tmp_path)
    assert isinstance(whole, StoredInput)
    first = trial(tmp_path, whole)
    model = load_trained_model(open_model(first.context()), adapted(), seed=0)
    assert isinstance(model.base, StoredBase)
    content = tmp_path / "over"
    content.mkdir()
    write_model(content, model, moved, adapted())

    second = trial(tmp_path, stored(tmp_path, content))
    with pytest.raises(UserError, match="is not in the store any more"):
        load_model(open_model(second.context()))
    manifest = Manifest(
        stage=whole.stage,
        key=whole.key,
        version=1,
        attempt="000001-a",
        epoch=1,
        outputs={whole.output: whole.files},
        numbers={},
        inputs={},
        created="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        provenance=PROVENANCE,
    )
    shutil.copytree(tmp_path / "store" / whole.folder, tmp_path / "store" / manifest.output_folder(whole.output))
    write_record(second.store, manifest.paths.manifest, manifest)
    again = load_model(open_model(second.context()))
    assert again.base == model.base
    assert all(np.array_equal(again.trained[name], moved[name]) for name in moved)
    embedding = bind(again.frozen.graph, again.trained, again.frozen.base).embed.embedding[...]
    np.testing.assert_array_equal(embedding, 2 * read_weights(open_checkpoint(TINY))["embed.embedding"])
