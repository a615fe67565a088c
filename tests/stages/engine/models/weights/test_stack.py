"""Stacks that are filled strip by strip, in memory of numpy and in that of a device."""

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import DTypeLike

from stages.engine.models.weights import stack as stack_module
from stages.engine.models.weights.checkpoint import Piece
from stages.engine.models.weights.stack import DeviceStack, HostStack, Layout

KINDS = pytest.mark.parametrize("kind", [HostStack, DeviceStack])
Kind = type[HostStack] | type[DeviceStack]
RANDOM = np.random.Generator(np.random.Philox(2))


@pytest.fixture(autouse=True)
def short_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_module, "STRIP_VALUES", 20)


def fill(
    kind: Kind, values: np.ndarray, num_stacked: int, dtype: DTypeLike, *, transposed: bool
) -> tuple[np.ndarray, list[str]]:
    """What comes of these values, and the pieces in which not all are numbers."""
    layout = Layout(values.shape, np.dtype(dtype), num_stacked, transposed=transposed)

    def read(piece: Piece, rows: slice, out: np.ndarray) -> None:
        own = values[piece.lead]
        out[...] = (own.T if transposed else own)[rows]

    stack = kind(layout, None)
    leads = product(*(range(size) for size in values.shape[:num_stacked]))
    finite = stack.fill([Piece(lead, str(lead)) for lead in leads], read)
    return np.asarray(stack.finish()), sorted({piece.name for piece, flag in finite if not flag})


@KINDS
@pytest.mark.parametrize(
    ("shape", "num_stacked", "transposed"),
    [((3, 7, 5), 1, True), ((2, 3, 4, 6), 2, True), ((9, 8), 0, False), ((3, 50), 1, False), ((45,), 0, False)],
)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_a_stack_holds_what_was_read(
    kind: Kind, shape: tuple[int, ...], num_stacked: int, transposed: bool, dtype: DTypeLike
) -> None:
    values = RANDOM.normal(size=shape).astype(np.float32)
    found, bad = fill(kind, values, num_stacked, dtype, transposed=transposed)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, values.astype(dtype))
    assert not bad


@KINDS
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_pieces_with_values_that_are_no_numbers_are_told(kind: Kind, dtype: DTypeLike) -> None:
    values = np.ones((4, 6, 5), np.float32)
    values[1, 5, 4], values[3, 0, 0], values[2] = np.nan, -np.inf, 3e38
    assert fill(kind, values, 1, dtype, transposed=True)[1] == ["(1,)", "(3,)"]


@pytest.mark.slow
def test_what_eight_devices_hold_passes_its_tests() -> None:
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "8", "JAX_DISABLE_MOST_OPTIMIZATIONS": "true"}
    tests = str(Path(__file__).parent / "eight_devices.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", tests]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, env=environment)
    assert ended.returncode == 0, ended.stdout + ended.stderr
