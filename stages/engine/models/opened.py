"""A model input before any of its weights are read: a source, an earlier stage's adapter over one, or a whole model."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from stages.contract import (
    ARTIFACT_FILE,
    ExternalInput,
    ModelArtifact,
    SourceRef,
    StageContext,
    StageInput,
    StoredBase,
    StoredInput,
)
from stages.engine.data.chat import Chat
from stages.engine.data.gguf import open_gguf
from stages.engine.data.gguf_tokenizer import tokenizer_from_gguf
from stages.engine.data.tokenizer import Tokenizer, load_tokenizer
from stages.engine.data.tokenizer_rows import fit_vocabulary
from stages.engine.models.weights.checkpoint import Checkpoint
from stages.engine.models.weights.gguf_checkpoint import gguf_checkpoint
from stages.engine.models.weights.hf import open_hf
from stages.errors import UserError

RewardHead = Literal["refused", "allowed", "required"]
"""Whether an input may be a reward model."""


@dataclass(frozen=True)
class OpenedModel:
    """What a model input is made of.

    Attributes:
        artifact: its description.
        base: what an adapter over these weights names as its base.
        folder: where the adapter's file is, if it has one.
        checkpoint: the weights below an adapter.
        tokenizer: of the model; it may have no chat template.
    """

    artifact: ModelArtifact
    base: SourceRef | StoredBase
    folder: Path
    checkpoint: Checkpoint
    tokenizer: Tokenizer

    @property
    def rewards(self) -> bool:
        """Whether it is a reward model, which makes one number of a conversation in place of next tokens."""
        return self.artifact.head is not None or self.checkpoint.head is not None

    @cached_property
    def chat(self) -> Chat:
        """Prompts and replies by the model's chat template.

        Raises:
            UserError: it has no template, or a broken one.
        """
        return Chat(self.tokenizer)


def open_model(context: StageContext, name: str = "model", reward_head: RewardHead = "refused") -> OpenedModel:
    """Opens an input.

    Args:
        context: of the stage.
        name: of the input.
        reward_head: whether it may be a reward model.

    Raises:
        UserError: it is no model, or not of this kind, or its files are missing, damaged or of no known family.
    """
    artifact, folder = _describe(context, name)
    checkpoint, tokenizer = _open(_weights_path(context, artifact, folder))
    base = _as_base(context.input(name)) if artifact.whole else artifact.base
    tokenizer = fit_vocabulary(tokenizer, checkpoint.arch.vocab_size)
    opened = OpenedModel(artifact, base, folder, checkpoint, tokenizer)
    _check_head(opened, name, reward_head)
    return opened


def _check_head(opened: OpenedModel, name: str, reward_head: RewardHead) -> None:
    if opened.rewards and reward_head == "refused":
        raise UserError(
            f"input `{name}`: {opened.checkpoint.path}: this is a reward model, which makes one number of a "
            "conversation and no next tokens; give a language model"
        )
    if not opened.rewards and reward_head == "required":
        raise UserError(
            f"input `{name}`: {opened.checkpoint.path}: this is no reward model: it has no head; give the checkpoint "
            "of a reward_model stage, or a published model for sequence classification with one label"
        )


def _weights_path(context: StageContext, artifact: ModelArtifact, folder: Path) -> Path:
    if artifact.whole:
        return folder
    if isinstance(artifact.base, StoredBase):
        return context.base_dir(artifact.base)
    return context.source_path(artifact.base)


def _as_base(given: StageInput) -> StoredBase:
    assert isinstance(given, StoredInput)
    checksums = {entry.path: entry.crc32c for entry in given.files}
    return StoredBase(stage=given.stage, key=given.key, output=given.output, checksums=checksums)


def _describe(context: StageContext, name: str) -> tuple[ModelArtifact, Path]:
    given = context.input(name)
    if isinstance(given, ExternalInput):
        return ModelArtifact(base=given.source), context.scratch
    folder = context.input_dir(name)
    try:
        return ModelArtifact.model_validate_json((folder / ARTIFACT_FILE).read_bytes()), folder
    except (OSError, ValidationError) as error:
        raise UserError(f"input `{name}`: {folder} holds no model: {error}") from error


def _open(path: Path) -> tuple[Checkpoint, Tokenizer]:
    if path.suffix == ".gguf":
        file = open_gguf(path)
        return gguf_checkpoint(file), tokenizer_from_gguf(file.metadata, str(path))
    return open_hf(path), load_tokenizer(path)
