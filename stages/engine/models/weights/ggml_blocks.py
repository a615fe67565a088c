"""Blocks of ggml's quantisations as float32.

A quantised block is small integers in groups, one scale for each group, and for some types one minimum for each group.
A function for each type takes the integers and the scales from the packed bytes, and one function multiplies them out.
The blocks of 256 values hold small integers as scales, under one scale of two bytes.

Layouts: `ggml-common.h` and `ggml-quants.c` of the ggml project.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Integer, UInt8

Raw = UInt8[np.ndarray, "bytes"]
Values = Float[np.ndarray, "values"]
Decode = Callable[[Raw, Values], None]
"""Writes the values of whole blocks into a contiguous array of float32."""

IQ4_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)
"""What the sixteen nibbles of the IQ4 types stand for."""


class Groups(NamedTuple):
    """Value = integer * scale + minimum, for N blocks of G groups.

    Attributes:
        integers: N * G groups.
        scales: of the groups.
        minima: of the groups.
    """

    integers: Integer[np.ndarray, "N G size"]
    scales: Float[np.ndarray, "N G"]
    minima: Float[np.ndarray, "N G"] | None = None


HALF = "<f2"
Q4_0 = np.dtype([("scale", HALF), ("low", "u1", 16)])
Q4_1 = np.dtype([("scale", HALF), ("minimum", HALF), ("low", "u1", 16)])
Q5_0 = np.dtype([("scale", HALF), ("high", "u1", 4), ("low", "u1", 16)])
Q5_1 = np.dtype([("scale", HALF), ("minimum", HALF), ("high", "u1", 4), ("low", "u1", 16)])
Q8_0 = np.dtype([("scale", HALF), ("integers", "i1", 32)])
Q2_K = np.dtype([("scales", "u1", 16), ("low", "u1", (2, 32)), ("scale", HALF), ("minimum", HALF)])
Q3_K = np.dtype([("high", "u1", 32), ("low", "u1", (2, 32)), ("scales", "u1", 12), ("scale", HALF)])
Q4_K = np.dtype([("scale", HALF), ("minimum", HALF), ("scales", "u1", 12), ("low", "u1", (4, 32))])
Q5_K = np.dtype([("scale", HALF), ("minimum", HALF), ("scales", "u1", 12), ("high", "u1", 32), ("low", "u1", (4, 32))])
Q6_K = np.dtype([("low", "u1", (2, 64)), ("high", "u1", (2, 32)), ("scales", "i1", 16), ("scale", HALF)])
IQ4_XS = np.dtype([("scale", HALF), ("scales_high", "<u2"), ("scales_low", "u1", (4, 1)), ("low", "u1", (8, 16))])


def _split(packed: np.ndarray, bits: int) -> UInt8[np.ndarray, "..."]:
    """The fields of so many bits within each byte of the last axis, lowest first, on a new axis before it."""
    packed, mask = np.ascontiguousarray(packed), (1 << bits) - 1
    return np.stack([(packed >> shift) & mask for shift in range(0, 8, bits)], axis=-2)


def _halves(values: np.ndarray) -> Float[np.ndarray, "N 1"]:
    """Floats of two bytes, one for each block."""
    return values.astype(np.float32)[:, None]


def _q4(blocks: np.ndarray) -> UInt8[np.ndarray, "N 1 32"]:
    return _split(blocks["low"], 4).reshape(-1, 1, 32)


def _q5(blocks: np.ndarray) -> UInt8[np.ndarray, "N 1 32"]:
    """The fifth bits of all values stand together, that of the first value lowest."""
    high = np.unpackbits(np.ascontiguousarray(blocks["high"]), axis=-1, bitorder="little")
    return _q4(blocks) | (high << 4)[:, None]


def _signed(integers: np.ndarray, middle: int) -> Integer[np.ndarray, "..."]:
    """Signed integers from those stored, which are larger by half of their range."""
    return integers.view(np.int8) - np.int8(middle)


def _scales_6(packed: UInt8[np.ndarray, "N 12"]) -> tuple[UInt8[np.ndarray, "N 8"], UInt8[np.ndarray, "N 8"]]:
    """Eight scales and eight minima of six bits: four of each whole, and the bits of the others in what is left."""
    scales, minima, low = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    last_scales, last_minima = (low & 15) | (scales >> 6 << 4), (low >> 4) | (minima >> 6 << 4)
    return np.hstack([scales & 63, last_scales]), np.hstack([minima & 63, last_minima])


def _with_minima(blocks: np.ndarray, integers: np.ndarray, scales: np.ndarray, minima: np.ndarray) -> Groups:
    """Groups of a super-block whose minima are taken off."""
    return Groups(integers, _halves(blocks["scale"]) * scales, -(_halves(blocks["minimum"]) * minima))


def _q4_k(blocks: np.ndarray) -> Groups:
    return _with_minima(blocks, _split(blocks["low"], 4).reshape(-1, 8, 32), *_scales_6(blocks["scales"]))


def _q5_k(blocks: np.ndarray) -> Groups:
    integers = _split(blocks["low"], 4).reshape(-1, 8, 32) | (_split(blocks["high"], 1) << 4)
    return _with_minima(blocks, integers, *_scales_6(blocks["scales"]))


def _q2_k(blocks: np.ndarray) -> Groups:
    integers = _split(blocks["low"], 2).reshape(-1, 16, 16)
    return _with_minima(blocks, integers, blocks["scales"] & 15, blocks["scales"] >> 4)


def _q3_k(blocks: np.ndarray) -> Groups:
    """A third bit that is set means that 4 is not taken off."""
    integers = _split(blocks["low"], 2).reshape(-1, 16, 16) | (_split(blocks["high"], 1).reshape(-1, 16, 16) << 2)
    low, high = _split(blocks["scales"][:, :8], 4), _split(blocks["scales"][:, 8:], 2)
    scales = _signed(low.reshape(-1, 16) | (high.reshape(-1, 16) << 4), 32)
    return Groups(_signed(integers, 4), _halves(blocks["scale"]) * scales)


def _q6_k(blocks: np.ndarray) -> Groups:
    low, high = _split(blocks["low"], 4).reshape(-1, 16, 16), _split(blocks["high"], 2).reshape(-1, 16, 16)
    return Groups(_signed(low | (high << 4), 32), _halves(blocks["scale"]) * blocks["scales"])


def _iq4_xs(blocks: np.ndarray) -> Groups:
    low = _split(blocks["scales_low"], 4).reshape(-1, 8)
    high = (blocks["scales_high"][:, None] >> np.arange(0, 16, 2, dtype=np.uint16) & 3).astype(np.uint8)
    integers = IQ4_VALUES[_split(blocks["low"], 4)].reshape(-1, 8, 32)
    return Groups(integers, _halves(blocks["scale"]) * _signed(low | (high << 4), 32))


def _quantised(layout: np.dtype, unpack: Callable[[np.ndarray], Groups]) -> Decode:
    def decode(raw: Raw, values: Values) -> None:
        integers, scales, minima = unpack(raw.view(layout))
        grouped = values.reshape(integers.shape)
        np.copyto(grouped, integers)
        grouped *= scales[..., None]
        if minima is not None:
            grouped += minima[..., None]

    return decode


def _plain(dtype: str) -> Decode:
    def decode(raw: Raw, values: Values) -> None:
        np.copyto(values, raw.view(dtype), casting="same_kind")

    return decode


def _bfloat16(raw: Raw, values: Values) -> None:
    """The upper half of a float32."""
    np.left_shift(raw.view("<u2"), 16, out=values.view(np.uint32), dtype=np.uint32)


DECODERS: Mapping[str, Decode] = {
    "F64": _plain("<f8"),
    "F32": _plain("<f4"),
    "F16": _plain(HALF),
    "BF16": _bfloat16,
    "Q4_0": _quantised(Q4_0, lambda blocks: Groups(_signed(_q4(blocks), 8), _halves(blocks["scale"]))),
    "Q4_1": _quantised(Q4_1, lambda blocks: Groups(_q4(blocks), _halves(blocks["scale"]), _halves(blocks["minimum"]))),
    "Q5_0": _quantised(Q5_0, lambda blocks: Groups(_signed(_q5(blocks), 16), _halves(blocks["scale"]))),
    "Q5_1": _quantised(Q5_1, lambda blocks: Groups(_q5(blocks), _halves(blocks["scale"]), _halves(blocks["minimum"]))),
    "Q8_0": _quantised(Q8_0, lambda blocks: Groups(blocks["integers"][:, None], _halves(blocks["scale"]))),
    "Q2_K": _quantised(Q2_K, _q2_k),
    "Q3_K": _quantised(Q3_K, _q3_k),
    "Q4_K": _quantised(Q4_K, _q4_k),
    "Q5_K": _quantised(Q5_K, _q5_k),
    "Q6_K": _quantised(Q6_K, _q6_k),
    "IQ4_NL": _quantised(Q4_0, lambda blocks: Groups(IQ4_VALUES[_q4(blocks)], _halves(blocks["scale"]))),
    "IQ4_XS": _quantised(IQ4_XS, _iq4_xs),
}
"""By ggml's name of the type."""
