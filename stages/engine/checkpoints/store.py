"""Resumable state: any pytree of arrays through Orbax to the progress area, committed by our own record."""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from jaxtyping import PyTree

from stages.contract import ProgressArea, ProgressPoint
from stages.errors import StorageError

logger = logging.getLogger(__name__)
StateT = TypeVar("StateT")
LeafT = TypeVar("LeafT")


class ProgressWriter:
    """Saves in the background; a step exists once its record is committed, after Orbax has finished."""

    def __init__(self, area: ProgressArea) -> None:
        self._area = area
        self._checkpointer = ocp.StandardCheckpointer()
        self._committer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="progress")
        self._pending: Future[None] | None = None

    def save(self, step: int, state: PyTree) -> None:
        """Starts to save a step; waits for the save before it.

        Raises:
            StorageError: the save before it failed.
        """
        self.join()
        uri = self._area.new_uri(step)
        self._checkpointer.save(uri, state)
        self._pending = self._committer.submit(self._commit, step, uri)

    def join(self) -> None:
        """Waits until the last save is committed.

        Raises:
            StorageError: it failed.
        """
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def close(self) -> None:
        """Waits for the last save and frees the threads."""
        try:
            self.join()
        finally:
            self._committer.shutdown()
            self._checkpointer.close()

    def _commit(self, step: int, uri: str) -> None:
        try:
            self._checkpointer.wait_until_finished()
        except (OSError, ValueError) as error:
            raise StorageError(f"{uri}: saving step {step} failed: {error}") from error
        if not epath.Path(uri).exists():
            raise StorageError(f"{uri}: step {step} was saved, but its folder is not there")
        self._area.commit(step)


def restore_newest(
    area: ProgressArea, template: StateT, check: Callable[[StateT, ProgressPoint], None]
) -> StateT | None:
    """The state of the best committed point that can be read; none if there is none.

    Args:
        area: where to look.
        template: a state of the same structure, shapes and types.
        check: raises when a restored state is not the point's.
    """
    abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, template)
    for point in area.candidates():
        try:
            with ocp.StandardCheckpointer() as checkpointer:
                state = checkpointer.restore(area.uri(point), abstract)
        except (OSError, ValueError, KeyError) as error:
            logger.warning(
                "step %d of attempt %s cannot be read, trying the next: %s", point.step, point.attempt, error
            )
            continue
        check(state, point)
        state = jax.tree.map(_unpinned, state)
        logger.info("resuming after step %d of attempt %s", point.step, point.attempt)
        return state
    return None


def _unpinned(leaf: LeafT) -> LeafT:
    """Orbax pins arrays to their device, for which everything would be compiled again."""
    return jnp.asarray(np.asarray(leaf)) if isinstance(leaf, jax.Array) else leaf
