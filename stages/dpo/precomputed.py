"""Log-probabilities under a reference of all responses of a dataset, computed once and kept by their content."""

import hashlib
import os
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jaxtyping import Array, Float, Float32

from stages.contract import StageContext
from stages.dpo.scoring import Candidates, Reference
from stages.engine.cluster.agreement import Agreement, agreed
from stages.engine.cluster.axes import constrain
from stages.engine.cluster.mesh import Cluster
from stages.engine.cluster.placement import of_this_process
from stages.engine.cluster.programs import compiled
from stages.engine.data.batching import Group
from stages.engine.data.packing import PackedBatch
from stages.errors import PreemptedError


def precompute(
    context: StageContext, load: Callable[[], Reference], identity: str, given: Candidates, cluster: Cluster
) -> Float32[np.ndarray, "N G"]:
    """The reference's log-probabilities of all responses, from the cache if this machine had them before.

    Args:
        context: of the stage.
        load: gives the reference, if it is needed.
        identity: says which weights the reference has.
        given: the responses.
        cluster: whose devices share the work.

    Raises:
        PreemptedError: asked to stop.
    """
    path = context.cache_dir("reference_logps") / f"{_content_key(identity, given.groups)}.npy"
    if agreed(cluster, path.exists()):
        return np.load(path)
    table = _score_all(context, load(), given, cluster)
    temporary = path.with_suffix(f".{os.getpid()}.npy")
    np.save(temporary, table)
    temporary.replace(path)
    return table


def _score_all(
    context: StageContext, reference: Reference, given: Candidates, cluster: Cluster
) -> Float32[np.ndarray, "N G"]:
    groups, packing, size = given
    gather = compiled(cluster, lambda sums: constrain(sums, None, None, None))
    table, stops = np.zeros((len(groups), packing.group_size), np.float32), Agreement(cluster)
    pending = list[tuple[int, PackedBatch, Float[Array, "B M G"]]]()

    def read() -> None:
        for start, packed, sums in pending:
            there = packed.groups != 0
            table[start + packed.groups[there] - 1] = np.asarray(of_this_process(cluster, sums))[there]

    for start in range(0, len(groups), size):
        context.beat(start, len(groups), {})
        if stops.wished(context.should_stop()):
            raise PreemptedError(f"stopped after the reference scored {start} of {len(groups)} rows; it starts again")
        batches = packing.pack(groups[start : start + size])
        found = [(start, packed, gather(reference.score(reference.weights, packed))) for packed in batches]
        read()  # what was found before, while the devices go on
        pending[:] = found
    read()
    return table


def _content_key(identity: str, groups: Sequence[Group]) -> str:
    """Of the reference, the kind of device, and all tokens in their order."""
    digest = hashlib.sha256(f"{identity}\n{jax.devices()[0].device_kind}\n".encode())
    for group in groups:
        masks = group.learnt or [np.ones(len(response), np.bool_) for response in group.responses]
        for ids, mask in zip(group.responses, masks, strict=True):
            digest.update(np.array([len(group.prompt), len(ids)], np.int64).tobytes())
            digest.update(np.asarray(group.prompt, np.int32).tobytes() + np.asarray(ids, np.int32).tobytes())
            digest.update(np.asarray(mask, np.bool_).tobytes())
    return digest.hexdigest()
