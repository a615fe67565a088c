"""Resumable state: any pytree of arrays through Orbax to the progress area, committed by our own record."""

import logging
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from jaxtyping import PyTree

from stages.contract import ProgressArea, ProgressPoint
from stages.engine.checkpoints.failures import storage_failures
from stages.engine.cluster.agreement import agreed
from stages.engine.cluster.mesh import ALONE, Cluster
from stages.errors import StorageError

logger = logging.getLogger(__name__)
StateT = TypeVar("StateT")
LeafT = TypeVar("LeafT")
RETRY_SECONDS = (1.0, 3.0, 9.0)
"""Pauses before a bucket is asked again for a saved state, beyond what its client does by itself."""


class ProgressWriter:
    """Saves in the background; a step exists once its record is committed, after Orbax has finished.

    Every process of a cluster saves the parts of the state that it has, at the same steps.
    """

    def __init__(self, area: ProgressArea) -> None:
        self._area = area
        everybody = set(range(jax.process_count()))
        # Barriers over all of JAX would be programs on its devices, and this is another thread than the training's.
        self._checkpointer = ocp.StandardCheckpointer(
            multiprocessing_options=ocp.options.MultiprocessingOptions(primary_host=0, active_processes=everybody)
        )
        self._committer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="progress")
        self._pending: Future[None] | None = None

    def save(self, step: int, state: PyTree) -> None:
        """Starts to save a step; waits for the save before it.

        Raises:
            StorageError: the save before it failed.
        """
        self.join()
        uri = self._area.new_uri(step)
        with _saving(step, uri):
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
        with _saving(step, uri):
            self._checkpointer.wait_until_finished()
            if not epath.Path(uri).exists():
                raise StorageError(f"{uri}: step {step} was saved, but its folder is not there")
        self._area.commit(step)


@contextmanager
def _saving(step: int, uri: str) -> Generator[None]:
    try:
        yield
    except storage_failures() as error:
        raise StorageError(f"{uri}: saving step {step} failed: {error}; look at the storage, then run again") from error


def restore_newest(
    area: ProgressArea, template: StateT, check: Callable[[StateT, ProgressPoint], None], cluster: Cluster = ALONE
) -> StateT | None:
    """The state of the best committed point that all processes can read; none if there is none.

    Args:
        area: where to look.
        template: a state of the same structure, shapes and types, placed as the result shall be: it may have been
            saved by another number of devices or processes.
        check: raises when a restored state is not the point's.
        cluster: whose processes read the same state.
    """
    for point in area.candidates():
        state = _read(area.uri(point), template, point)
        if not agreed(cluster, state is not None) or state is None:
            continue
        check(state, point)
        logger.info("resuming after step %d of attempt %s", point.step, point.attempt)
        return jax.tree.map(_unpinned, state) if cluster.mesh is None else state
    return None


def _read(uri: str, template: StateT, point: ProgressPoint) -> StateT | None:
    """A saved state, read by this process alone: no other waits for one that fails.

    A bucket is asked again after a while: that it did not answer is no reason to lose the steps since the point before.
    """
    for pause in (*(RETRY_SECONDS if "://" in uri else ()), None):
        try:
            return _restore(uri, template)
        except storage_failures() as error:
            trying = "trying the next" if pause is None else f"trying again in {pause:g} s"
            logger.warning("step %d of attempt %s cannot be read, %s: %s", point.step, point.attempt, trying, error)
        time.sleep(pause or 0.0)
    return None


def _restore(uri: str, template: StateT) -> StateT:
    me = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(primary_host=me, active_processes={me})
    with ocp.StandardCheckpointer(multiprocessing_options=alone) as checkpointer:
        return checkpointer.restore(uri, jax.tree.map(ocp.utils.to_shape_dtype_struct, template))


def _unpinned(leaf: LeafT) -> LeafT:
    """Orbax pins arrays to their device, for which everything would be compiled again."""
    return jnp.asarray(np.asarray(leaf)) if isinstance(leaf, jax.Array) else leaf
