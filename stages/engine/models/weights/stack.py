"""Arrays that are filled piece by piece where they stay: on a device, in the rows and columns that it holds.

A weight is a stack of matrices or vectors. They are read in strips of rows, each once, so that little memory is ever
needed beside what stays. CPU devices take over memory of numpy as it is; other devices have their own, which a compiled
program updates in place.
"""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding, SingleDeviceSharding
from jaxtyping import Array, Bool, Int, Shaped

from stages.engine.models.weights.cast import all_finite
from stages.engine.models.weights.checkpoint import Piece, Shape

ALIGNMENT = 64
"""Bytes: numpy's memory is taken over from such addresses, and copied from others."""
STRIP_VALUES = 1 << 22
MAX_READERS = 4

Read = Callable[[Piece, slice, np.ndarray], None]
"""Writes some rows of a piece, in the layout of files, into an array."""
Finite = tuple[Piece, bool | Bool[Array, ""]]
"""Whether all values of a part of a piece are numbers; known at once, or when the device has got there."""
Index = tuple[tuple[int, int], ...]
"""Start and end on every axis."""


class Layout(NamedTuple):
    """A stack.

    Attributes:
        shape: whole, stacked axes first.
        dtype: of its values.
        num_stacked: axes that count matrices or vectors.
        transposed: whether files hold the matrices with their axes swapped.
    """

    shape: Shape
    dtype: np.dtype
    num_stacked: int
    transposed: bool

    @property
    def stored(self) -> Shape:
        """Shape of a matrix or vector in files."""
        own = self.shape[self.num_stacked :]
        return own[::-1] if self.transposed else own


class _Place(NamedTuple):
    """Where a piece goes in the part of a stack that one holder has.

    Attributes:
        lead: of the piece, within the part.
        rows: that the part has of it, in the layout of files.
        columns: likewise; nothing for a vector.
    """

    lead: Shape
    rows: slice
    columns: tuple[slice, ...]


def _place(layout: Layout, index: Index, lead: Shape) -> _Place | None:
    """Where the piece goes in the part at this index, unless that has nothing of it."""
    outer, own = index[: layout.num_stacked], index[layout.num_stacked :]
    if not all(start <= at < end for at, (start, end) in zip(lead, outer, strict=True)):
        return None
    rows, *columns = (slice(start, end) for start, end in (own[::-1] if layout.transposed else own))
    return _Place(tuple(at - start for at, (start, _) in zip(lead, outer, strict=True)), rows, tuple(columns))


def _strips(
    layout: Layout, parts: Iterable[tuple[int, Index]], lead: Shape
) -> Iterator[tuple[slice, dict[int, _Place]]]:
    """Rows of a piece to be read at once, and the parts by number that need them."""
    places = {number: place for number, index in parts if (place := _place(layout, index, lead))}
    num_rows = max(1, STRIP_VALUES // math.prod(layout.stored[1:]))
    for start, end in sorted({(place.rows.start, place.rows.stop) for place in places.values()}):
        needing = {number: place for number, place in places.items() if place.rows == slice(start, end)}
        for row in range(start, end, num_rows):
            yield slice(row, min(row + num_rows, end)), needing


def _index(shape: Shape, slices: tuple[slice, ...]) -> Index:
    return tuple(axis.indices(size)[:2] for axis, size in zip(slices, shape, strict=True))


def _indices(shape: Shape, sharding: Sharding | None) -> list[tuple[SingleDeviceSharding | None, Index]]:
    """What each device here holds."""
    if sharding is None:
        return [(None, _index(shape, (slice(None),) * len(shape)))]
    slices = sharding.addressable_devices_indices_map(shape)
    return [(SingleDeviceSharding(device), _index(shape, own)) for device, own in slices.items() if own is not None]


def _join(layout: Layout, sharding: Sharding | None, parts: list[Array]) -> Shaped[Array, "..."]:
    return parts[0] if sharding is None else jax.make_array_from_single_device_arrays(layout.shape, sharding, parts)


def _empty(shape: Shape, dtype: np.dtype) -> Shaped[np.ndarray, "..."]:
    num_bytes = math.prod(shape) * dtype.itemsize
    memory = np.empty(num_bytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + num_bytes].view(dtype).reshape(shape)


class HostStack:
    """A stack for CPU devices; those that hold the same share one piece of memory."""

    def __init__(self, layout: Layout, sharding: Sharding | None) -> None:
        self._layout, self._sharding = layout, sharding
        self._indices = _indices(layout.shape, sharding)
        self._distinct = list(dict.fromkeys(index for _, index in self._indices))
        self._memory = [_empty(tuple(end - start for start, end in index), layout.dtype) for index in self._distinct]

    def fill(self, pieces: Sequence[Piece], read: Read) -> list[Finite]:
        """Writes these pieces, several at a time."""
        strips = [
            (piece, rows, places)
            for piece in pieces
            for rows, places in _strips(self._layout, enumerate(self._distinct), piece.lead)
        ]
        with ThreadPoolExecutor(min(MAX_READERS, os.cpu_count() or 1)) as readers:
            return list(readers.map(partial(self._fill, read), *zip(*strips, strict=True)))

    def _fill(self, read: Read, piece: Piece, rows: slice, places: dict[int, _Place]) -> Finite:
        views = {number: self._view(number, place, rows) for number, place in places.items()}
        shape = (rows.stop - rows.start, *self._layout.stored[1:])
        whole = next((view for view in views.values() if view.shape == shape), None)
        strip = _empty(shape, self._layout.dtype) if whole is None else whole
        read(piece, rows, strip)
        for number, view in views.items():
            if view is not strip:
                view[...] = strip[:, *places[number].columns]
        return piece, all_finite(strip)

    def put(self, lead: Shape, values: Shaped[np.ndarray | Array, "..."]) -> None:
        """Writes one matrix or vector, in the layout of the stack."""
        array = np.asarray(values)
        for number, index in enumerate(self._distinct):
            place = _place(self._layout, index, lead)
            if place is not None:
                self._memory[number][place.lead] = array[place.rows, *place.columns]

    def _view(self, number: int, place: _Place, rows: slice) -> Shaped[np.ndarray, "..."]:
        """Memory for these rows, in the layout of files."""
        own = self._memory[number][place.lead]
        own = own.swapaxes(-1, -2) if self._layout.transposed else own
        return own[rows.start - place.rows.start : rows.stop - place.rows.start]

    def finish(self) -> Shaped[Array, "..."]:
        """The whole, once everything is written."""
        memory = dict(zip(self._distinct, self._memory, strict=True))
        parts = [jax.device_put(memory[index], device) for device, index in self._indices]
        return _join(self._layout, self._sharding, parts)


class DeviceStack:
    """A stack for devices with memory of their own, and for what is computed there."""

    def __init__(self, layout: Layout, sharding: Sharding | None) -> None:
        self._layout, self._sharding = layout, sharding
        self._indices = _indices(layout.shape, sharding)
        self._parts = [
            jnp.zeros(tuple(end - start for start, end in index), layout.dtype, device=device)
            for device, index in self._indices
        ]

    def fill(self, pieces: Sequence[Piece], read: Read) -> list[Finite]:
        """Writes these pieces, one after the other."""
        found = list[Finite]()
        for piece in pieces:
            for rows, places in _strips(self._layout, self._numbered(), piece.lead):
                # What is on its way is a strip at most.
                jax.block_until_ready([finite for _, finite in found[-1:]])
                strip = _empty((rows.stop - rows.start, *self._layout.stored[1:]), self._layout.dtype)
                read(piece, rows, strip)
                for number, place in places.items():
                    values = strip[:, *place.columns]
                    found.append((piece, self._write(number, place.lead, rows.start - place.rows.start, values)))
        return found

    def put(self, lead: Shape, values: Shaped[np.ndarray | Array, "..."]) -> None:
        """Writes one matrix or vector, in the layout of the stack."""
        for number, index in self._numbered():
            place = _place(self._layout, index, lead)
            if place is not None:
                self._write(number, place.lead, 0, values[place.rows, *place.columns])

    def _numbered(self) -> Iterator[tuple[int, Index]]:
        return enumerate(index for _, index in self._indices)

    def _write(self, number: int, lead: Shape, row: int, values: Shaped[np.ndarray | Array, "..."]) -> Bool[Array, ""]:
        own = (row, *(0,) * (values.ndim - 1))
        start = np.array((*lead, *(own[::-1] if self._layout.transposed else own)), np.int32)
        moved = jax.device_put(values, self._indices[number][0])
        self._parts[number], finite = _write(self._parts[number], moved, start, transposed=self._layout.transposed)
        return finite

    def finish(self) -> Shaped[Array, "..."]:
        """The whole, once everything is written."""
        return _join(self._layout, self._sharding, self._parts)


@partial(jax.jit, donate_argnums=0, static_argnames="transposed")
def _write(
    part: Shaped[Array, "*shape"], values: Shaped[Array, "..."], start: Int[Array, " axis"], *, transposed: bool
) -> tuple[Shaped[Array, "*shape"], Bool[Array, ""]]:
    """The part with these values from `start` on, and whether they are all numbers."""
    values = values.swapaxes(-1, -2) if transposed else values
    whole = values.reshape((1,) * (part.ndim - values.ndim) + values.shape)
    return jax.lax.dynamic_update_slice(part, whole, tuple(start)), jnp.isfinite(values).all()


def make_stack(layout: Layout, sharding: Sharding | None) -> HostStack | DeviceStack:
    """An empty stack; without a sharding it will be whole, wherever computations are by default."""
    devices = jax.devices()[:1] if sharding is None else sharding.device_set
    on_host = all(device.platform == "cpu" for device in devices)
    return HostStack(layout, sharding) if on_host else DeviceStack(layout, sharding)
