"""The head of a reward model: the matrix that makes one number of a hidden state. It is trained with the adapter."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from stages.engine.data.uniforms import uniforms
from stages.engine.models.families.family import REWARD_HEAD
from stages.engine.models.lora import Weights
from stages.engine.models.opened import OpenedModel
from stages.engine.models.weights.checkpoint import Piece
from stages.errors import UserError

HEAD_FILE = "head.safetensors"


def fresh_head(width: int, seed: int) -> Weights:
    """A head to begin with: of variance 1 / (width + 1) as in arXiv 2009.01325, but uniform as an adapter's start."""
    bound = (3.0 / (width + 1)) ** 0.5
    drawn = uniforms(np.random.Philox(key=(seed, 0)), width)
    return {REWARD_HEAD.path: jnp.asarray((2 * drawn - 1)[:, None] * np.float32(bound))}


def part_head(weights: Weights) -> tuple[Weights, Weights]:
    """The weights that go into the decoder, and the head, which only a reward model has."""
    head = weights.keys() & {REWARD_HEAD.path}
    return {name: weights[name] for name in weights if name not in head}, {name: weights[name] for name in head}


def save_head(folder: Path, head: Weights) -> str | None:
    """Writes a head, and returns the name of its file; nothing where there is none."""
    if not head:
        return None
    save_file({name: np.asarray(value) for name, value in head.items()}, folder / HEAD_FILE)
    return HEAD_FILE


def load_head(opened: OpenedModel) -> Weights:
    """The head of a reward model, in float32; nothing of a model without one.

    Raises:
        UserError: it is missing, has the wrong shape for the model, or holds what is no number.
    """
    if not opened.rewards:
        return {}
    if opened.artifact.head is None:
        where, head = f"{opened.checkpoint.path}: {REWARD_HEAD.hf}", _read_stored(opened)
    else:
        where, head = str(opened.folder / opened.artifact.head), _read_file(opened.folder / opened.artifact.head)
    width = opened.checkpoint.arch.width
    if head.shape != (width, 1):
        raise UserError(
            f"{where}: the head has shape {head.shape}, [in, out]; expected ({width}, 1), which makes one reward of a "
            "hidden state"
        )
    if not np.isfinite(head).all():
        raise UserError(f"{where}: the head holds NaN or infinite values")
    return {REWARD_HEAD.path: jnp.asarray(head)}


def _read_stored(opened: OpenedModel) -> Float[np.ndarray, "..."]:
    """The head of a published reward model, as it is used here: [in, out]."""
    shape = opened.checkpoint.head
    assert shape is not None
    head = np.empty(shape, np.float32)
    opened.checkpoint.read(Piece((), REWARD_HEAD.hf), slice(0, shape[0]), head)
    return head.T


def _read_file(path: Path) -> Float[np.ndarray, "..."]:
    try:
        return load_file(path)[REWARD_HEAD.path]
    except (OSError, SafetensorError, KeyError) as error:
        raise UserError(f"{path}: holds no head of a reward model: {error}") from error
