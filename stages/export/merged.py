"""The whole model, its adapter worked into the base, as a folder in the layout of Hugging Face."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
from jaxtyping import DTypeLike, Float

from stages.contract import ModelArtifact, StageContext
from stages.engine.models.merge import merged_weights
from stages.engine.models.reward_head import part_head
from stages.engine.models.source import LoadedModel
from stages.engine.models.weights.save import save_hf
from stages.errors import PreemptedError
from stages.export.limits import check_range


def write_merged(context: StageContext, folder: Path, model: LoadedModel, dtype: DTypeLike) -> ModelArtifact:
    """Writes weight after weight, and a beat for each.

    Raises:
        UserError: a weight is too large for the type, or holds what is no number.
        PreemptedError: the stage was asked to stop.
    """
    checkpoint, weights = model.opened.checkpoint, _weights(context, model, dtype)
    reward = model.opened.rewards
    save_hf(folder, checkpoint.family, checkpoint.arch, weights, model.opened.tokenizer, dtype=dtype, reward=reward)
    return ModelArtifact(base=model.opened.artifact.base, whole=True)


def _weights(
    context: StageContext, model: LoadedModel, dtype: DTypeLike
) -> Iterator[tuple[str, Float[np.ndarray, "..."]]]:
    adapter = model.opened.artifact.adapter
    quantization = None if adapter is None else adapter.quantization
    trained, head = part_head(model.trained)
    total = len(model.opened.checkpoint.pieces) + len(head)
    merged = merged_weights(model.frozen, trained, model.lora, quantization)
    for done, (path, weight) in enumerate(chain(merged, head.items())):
        if context.should_stop():
            raise PreemptedError(f"stopped after {done} of {total} weights; they are written again")
        context.beat(done, total, {})
        check_range(path, weight, dtype)
        yield path, np.asarray(weight)
