"""The adapter of a model as PEFT reads it, and as later stages do."""

import shutil
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jaxtyping import DTypeLike
from safetensors.numpy import load_file, save_file

from stages.contract import ModelArtifact, SourceRef, StoredBase
from stages.engine.data.tokenizer_save import save_tokenizer
from stages.engine.models.families.family import REWARD_HEAD
from stages.engine.models.opened import OpenedModel
from stages.engine.models.peft import PEFT_CONFIG_FILE, PEFT_WEIGHTS_FILE, peft_config, peft_weights
from stages.engine.models.reward_head import load_head, save_head
from stages.engine.models.source import lora_of
from stages.errors import UserError
from stages.export.limits import check_range

HUB = "hf://"


def write_adapter(folder: Path, opened: OpenedModel, dtype: DTypeLike) -> ModelArtifact:
    """Writes PEFT's two files and the tokenizer, and beside them the files of adapter and head as they are here.

    Raises:
        UserError: the model has no adapter, or one that PEFT has no place for or the type no values.
    """
    base, adapter = opened.base, opened.artifact.adapter
    if adapter is None:
        raise UserError(
            f"{opened.checkpoint.path}: no adapter to export; train one, or export the whole model with format: merged"
        )
    if opened.checkpoint.text_part:
        raise UserError(
            f"{opened.checkpoint.path}: this base is one of text and images, whose layers PEFT knows by other names; "
            "export the text model as a whole with format: merged"
        )
    tensors = {name: jnp.asarray(tensor) for name, tensor in load_file(opened.folder / adapter.file).items()}
    head = load_head(opened)
    for name, tensor in (tensors | head).items():
        check_range(name, tensor, dtype)
    mixture = opened.checkpoint.arch.experts is not None
    named = {name: matrix.astype(dtype, order="C") for name, matrix in peft_weights(tensors, mixture=mixture)}
    named |= {f"base_model.model.{REWARD_HEAD.hf}": np.asarray(kernel, dtype).T.copy() for kernel in head.values()}
    save_file(named, folder / PEFT_WEIGHTS_FILE, {"format": "pt"})
    config = peft_config(lora_of(adapter), *_published_name(base), mixture=mixture, reward=opened.rewards)
    (folder / PEFT_CONFIG_FILE).write_text(config.model_dump_json(indent=2) + "\n")
    shutil.copyfile(opened.folder / adapter.file, folder / adapter.file)
    save_tokenizer(folder, opened.tokenizer)
    return ModelArtifact(base=base, adapter=adapter, head=save_head(folder, head))


def _published_name(base: SourceRef | StoredBase) -> tuple[str, str | None]:
    """What other programs find the base by: the Hub's name and commit, the source itself, or the stage that made it."""
    if isinstance(base, StoredBase):
        return f"{base.stage}-{base.key[:16]}/{base.output}", None
    if base.uri.startswith(HUB):
        return base.uri.removeprefix(HUB).partition("@")[0], base.digest.removeprefix("hf:")
    return base.uri, None
