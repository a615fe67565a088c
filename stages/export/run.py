"""A model written for other programs, top to bottom."""

import jax.numpy as jnp

from stages.contract import ARTIFACT_FILE, StageContext
from stages.engine.models.opened import open_model
from stages.engine.models.source import load_model
from stages.export.adapter import write_adapter
from stages.export.config import ExportConfig
from stages.export.generation import add_published_generation
from stages.export.merged import write_merged


def run(context: StageContext, config: ExportConfig) -> None:
    """Writes the input model: whole, its adapter merged into the base, or the adapter alone."""
    folder, dtype = context.output_dir("model"), jnp.dtype(config.dtype)
    opened = open_model(context, reward_head="allowed")
    if config.format == "adapter":
        artifact = write_adapter(folder, opened, dtype)
    else:
        artifact = write_merged(context, folder, load_model(opened), dtype)
    add_published_generation(folder, opened.checkpoint.path)
    (folder / ARTIFACT_FILE).write_text(artifact.model_dump_json())
