"""The head of a reward model: its start, its file, and which stages take a model that has one."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from stage_trial import TINY, StageTrial, external, stored

from stages.contract import ARTIFACT_FILE, ModelArtifact, StageInput
from stages.engine.data.tokenizer import load_tokenizer
from stages.engine.models.families.family import REWARD_HEAD
from stages.engine.models.opened import OpenedModel, RewardHead, open_model
from stages.engine.models.reward_head import HEAD_FILE, fresh_head, load_head, part_head, save_head
from stages.engine.models.weights.load import open_checkpoint, read_weights
from stages.engine.models.weights.save import save_hf
from stages.errors import UserError
from stages.export.config import ExportConfig

WIDTH = 64
HEAD = fresh_head(WIDTH, 3)[REWARD_HEAD.path]


def opened(folder: Path, model: StageInput, reward_head: RewardHead = "allowed") -> OpenedModel:
    trial = StageTrial(folder, "export", ExportConfig(), {"model": model})
    return open_model(trial.context(), reward_head=reward_head)


def over_a_base(folder: Path, head: np.ndarray | None) -> StageInput:
    """The tiny model under a head, as the output of a stage."""
    content = folder / "content"
    content.mkdir()
    if head is not None:
        save_file({REWARD_HEAD.path: head}, content / HEAD_FILE)
    artifact = ModelArtifact(base=external(TINY).source, head=HEAD_FILE)
    (content / ARTIFACT_FILE).write_text(artifact.model_dump_json())
    return stored(folder, content)


def published(folder: Path, head: np.ndarray) -> StageInput:
    """The tiny model with a head in place of its output projection, in the layout of Hugging Face."""
    content = folder / "published"
    content.mkdir()
    checkpoint = open_checkpoint(TINY)
    weights = {**read_weights(checkpoint), REWARD_HEAD.path: head}
    save_hf(content, checkpoint.family, checkpoint.arch, weights.items(), load_tokenizer(TINY), reward=True)
    return external(content)


def test_a_fresh_head_is_that_of_its_seed_and_gives_rewards_of_about_one() -> None:
    wide = np.asarray(fresh_head(4095, 7)[REWARD_HEAD.path])
    assert wide.shape == (4095, 1)
    np.testing.assert_allclose(wide.std(), 1 / 64, rtol=0.03)
    np.testing.assert_array_equal(wide, fresh_head(4095, 7)[REWARD_HEAD.path])
    assert not np.array_equal(wide, fresh_head(4095, 8)[REWARD_HEAD.path])


def test_a_head_lies_beside_an_adapter_in_a_file_of_its_own(tmp_path: Path) -> None:
    adapter, head = part_head({"lora": jnp.ones(2), REWARD_HEAD.path: HEAD})
    assert (adapter.keys(), head.keys()) == ({"lora"}, {REWARD_HEAD.path})
    assert save_head(tmp_path, head) == HEAD_FILE
    np.testing.assert_array_equal(load_file(tmp_path / HEAD_FILE)[REWARD_HEAD.path], HEAD)


def test_without_a_head_nothing_is_written(tmp_path: Path) -> None:
    assert save_head(tmp_path, part_head({"lora": jnp.ones(2)})[1]) is None
    assert list(tmp_path.iterdir()) == []


def test_a_stages_head_is_read_again(tmp_path: Path) -> None:
    model = opened(tmp_path, over_a_base(tmp_path, np.asarray(HEAD)))
    np.testing.assert_array_equal(load_head(model)[REWARD_HEAD.path], HEAD)


def test_a_published_reward_model_has_its_head_among_its_weights(tmp_path: Path) -> None:
    given = published(tmp_path, np.asarray(HEAD))
    model = opened(tmp_path, given)
    np.testing.assert_array_equal(load_head(model)[REWARD_HEAD.path], HEAD)
    weights, original = read_weights(model.checkpoint), read_weights(open_checkpoint(TINY))
    assert original.keys() - weights.keys() == {"lm_head.kernel"}
    assert all(np.array_equal(weights[name], original[name]) for name in weights)


def test_a_model_without_a_head_loads_none(tmp_path: Path) -> None:
    assert load_head(opened(tmp_path, external(TINY))) == {}


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (np.ones((WIDTH, 3), np.float32), r"the head has shape \(64, 3\), \[in, out\]; expected \(64, 1\)"),
        (np.ones((WIDTH + 1, 1), np.float32), r"shape \(65, 1\)"),
        (np.ones(WIDTH, np.float32), r"shape \(64,\)"),
        (np.full((WIDTH, 1), np.nan, np.float32), "NaN or infinite"),
        (None, "holds no head"),
    ],
)
def test_a_head_that_fits_no_reward_model_is_refused(tmp_path: Path, head: np.ndarray | None, words: str) -> None:
    with pytest.raises(UserError, match=words):
        load_head(opened(tmp_path, over_a_base(tmp_path, head)))


def test_a_published_classifier_of_several_labels_is_refused(tmp_path: Path) -> None:
    published(tmp_path, np.asarray(HEAD))
    file = tmp_path / "published" / "model.safetensors"
    save_file({**load_file(file), REWARD_HEAD.hf: np.ones((3, WIDTH), np.float32)}, file, {"format": "pt"})
    with pytest.raises(UserError, match=r"score\.weight: the head has shape \(64, 3\)"):
        load_head(opened(tmp_path, external(tmp_path / "published")))


def test_a_language_model_is_asked_for_where_next_tokens_are_needed(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"input `model`: .*this is a reward model"):
        opened(tmp_path, over_a_base(tmp_path, np.asarray(HEAD)), "refused")
    with pytest.raises(UserError, match=r"input `model`: .*this is a reward model"):
        opened(tmp_path, published(tmp_path, np.asarray(HEAD)), "refused")


def test_a_reward_model_is_asked_for_where_rewards_are_needed(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"input `model`: .*it has no head"):
        opened(tmp_path, external(TINY), "required")


def test_a_whole_model_has_no_head_beside_it() -> None:
    with pytest.raises(ValueError, match="has its head among its weights"):
        ModelArtifact(base=external(TINY).source, whole=True, head=HEAD_FILE)
