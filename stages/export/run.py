"""A model written for other programs, top to bottom."""

import shutil

import jax.numpy as jnp

from stages.contract import ARTIFACT_FILE, StageContext
from stages.engine.data.tokenizer_config import GENERATION_FILE
from stages.engine.models.opened import open_model
from stages.engine.models.source import load_model
from stages.export.adapter import write_adapter
from stages.export.config import ExportConfig
from stages.export.merged import write_merged


def run(context: StageContext, config: ExportConfig) -> None:
    """Writes the input model: whole, its adapter merged into the base, or the adapter alone."""
    folder, dtype = context.output_dir("model"), jnp.dtype(config.dtype)
    if config.format == "adapter":
        opened = open_model(context)
        artifact = write_adapter(folder, opened, dtype)
    else:
        model = load_model(context)
        opened = model.opened
        artifact = write_merged(context, folder, model, dtype)
    published = opened.checkpoint.path / GENERATION_FILE
    if published.is_file():
        # It says more than end tokens: how its makers want the model to be sampled.
        shutil.copyfile(published, folder / GENERATION_FILE)
    (folder / ARTIFACT_FILE).write_text(artifact.model_dump_json())
