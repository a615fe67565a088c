"""The most that a device computes, and the memory that it has needed so far."""

import logging
import resource
import time
from collections.abc import Mapping
from functools import cache

import jax
import jax.numpy as jnp

logger = logging.getLogger(__name__)

PUBLISHED: Mapping[str, float] = {
    "NVIDIA A100": 312e12,
    "NVIDIA L4": 121e12,
    "NVIDIA L40": 181e12,
    "NVIDIA L40S": 362e12,
    "NVIDIA H100": 989e12,
    "NVIDIA H200": 989e12,
    "NVIDIA B200": 2250e12,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5p": 459e12,
    "TPU v5": 459e12,
    "TPU v6 lite": 918e12,
}
"""Beginning of a kind of device to its makers' figure: operations a second in bfloat16, without sparsity."""
_SIZE, _TIMES = 1024, 5
_GIB = 2**30


@cache
def peak_flops() -> float:
    """Floating point operations a second of a device of this process: published for its kind, or else measured.

    Measured is the fastest of a few products of matrices in float32.
    """
    kind = jax.local_devices()[0].device_kind
    # Names may begin with others: L40S with L4.
    name = max((name for name in PUBLISHED if kind.startswith(name)), key=len, default=None)
    peak = _measured() if name is None else PUBLISHED[name]
    logger.info("%s: %s peak of %.4g TFLOP/s", kind, "measured" if name is None else "published", peak / 1e12)
    return peak


def _measured() -> float:
    product = jax.jit(jnp.matmul)
    matrix = jnp.ones((_SIZE, _SIZE), jnp.float32)
    product(matrix, matrix).block_until_ready()
    return 2 * _SIZE**3 / min(_seconds(product, matrix) for _ in range(_TIMES))


def _seconds(product: jax.stages.Wrapped, matrix: jax.Array) -> float:
    started = time.perf_counter()
    product(matrix, matrix).block_until_ready()
    return time.perf_counter() - started


def memory_gib() -> float:
    """The most memory that a device has held so far, in GiB; of the process where its devices do not say."""
    stats = [device.memory_stats() for device in jax.local_devices()]
    peaks = [found["peak_bytes_in_use"] for found in stats if found and "peak_bytes_in_use" in found]
    if peaks:
        return max(peaks) / _GIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / _GIB
