"""Quantised blocks, worked by hand, and against ggml's own Python package."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import real_models

from stages.engine.data.ggml_types import GGML_TYPES
from stages.engine.data.gguf import open_gguf
from stages.engine.models.weights.ggml_blocks import DECODERS
from stages.engine.models.weights.gguf import read_rows

NUMBERS = {kind.name: number for number, kind in GGML_TYPES.items()}
NIBBLES = bytes(low | (15 - low) << 4 for low in range(16))
"""Values 0 to 15, then 15 to 0: the low halves come first."""
COUNTED = np.array([*range(16), *reversed(range(16))], np.float32)
IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)


def half(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}e", *values)


def decode(name: str, *blocks: bytes) -> np.ndarray:
    kind = GGML_TYPES[NUMBERS[name]]
    assert {len(block) for block in blocks} == {kind.block_bytes}
    values = np.full((len(blocks), kind.block_size), np.nan, np.float32)
    DECODERS[name](np.frombuffer(b"".join(blocks), np.uint8), values.reshape(-1))
    return values


def repeated(*values: float, times: int) -> np.ndarray:
    return np.repeat(np.array(values, np.float32), times)


@pytest.mark.parametrize(("name", "form"), [("F32", "<f4"), ("F16", "<f2"), ("F64", "<f8")])
def test_floats_are_rounded_to_four_bytes(name: str, form: str) -> None:
    stored = np.array([1.5, -2.0, 0.1, 3e4, -0.0, 6e-5], form)
    values = np.empty(6, np.float32)
    DECODERS[name](stored.view(np.uint8), values)
    np.testing.assert_array_equal(values, stored.astype(np.float32))


def test_bf16_is_the_upper_half_of_a_float() -> None:
    values = np.empty(3, np.float32)
    DECODERS["BF16"](np.array([0x3FC0, 0xC000, 0x8000], "<u2").view(np.uint8), values)
    assert values.tolist() == [1.5, -2.0, 0.0]
    assert np.signbit(values).tolist() == [False, True, True]


def test_q4_0_is_scale_times_nibble_less_eight() -> None:
    found = decode("Q4_0", half(0.5) + NIBBLES, half(-2.0) + NIBBLES)
    np.testing.assert_array_equal(found, [(COUNTED - 8) * 0.5, (COUNTED - 8) * -2.0])


def test_q4_1_is_scale_times_nibble_plus_minimum() -> None:
    found = decode("Q4_1", half(0.5, -3.0) + NIBBLES, half(2.0, 0.25) + NIBBLES)
    np.testing.assert_array_equal(found, [COUNTED * 0.5 - 3.0, COUNTED * 2.0 + 0.25])


@pytest.mark.parametrize(("name", "scales"), [("Q5_0", half(0.5)), ("Q5_1", half(0.5, -8.0))])
def test_q5_takes_the_fifth_bit_of_each_value_from_one_word(name: str, scales: bytes) -> None:
    """Sixteen is taken off by the one and is in the minimum of the other."""
    fifth = np.zeros(32, np.float32)
    fifth[[0, 9, 31]] = 16
    found = decode(name, scales + struct.pack("<I", 1 | 1 << 9 | 1 << 31) + NIBBLES)
    np.testing.assert_array_equal(found, [(COUNTED + fifth - 16) * 0.5])


def test_q8_0_is_scale_times_signed_byte() -> None:
    signed = np.arange(-16, 16, dtype=np.int8) * 8
    found = decode("Q8_0", half(0.25) + signed.tobytes(), half(-1.0) + signed[::-1].tobytes())
    np.testing.assert_array_equal(found, [signed * 0.25, signed[::-1] * -1.0])


def test_q2_k_has_four_values_in_a_byte_32_apart_and_a_scale_and_minimum_for_16() -> None:
    scales = bytes(group | (15 - group) << 4 for group in range(16))
    found = decode("Q2_K", scales + bytes([0b11_10_01_00]) * 64 + half(0.5, 2.0))
    integers = repeated(0, 1, 2, 3, 0, 1, 2, 3, times=32)
    groups = repeated(*range(16), times=16)
    np.testing.assert_array_equal(found[0], groups * 0.5 * integers - (15 - groups) * 2.0)


def test_q3_k_takes_four_off_where_the_mask_is_unset_and_has_scales_of_six_bits_less_32() -> None:
    packed = bytes([0x21, 0, 0, 0, 0, 0, 0, 0xF0, 0b00_01_00_10, 0, 0, 0b11_00_00_00])
    scales = [0] * 16
    scales[0], scales[8], scales[15] = 0x21, 0x12, 0x3F
    found = decode("Q3_K", bytes([0b0000_0001]) * 32 + bytes([0b11_10_01_00]) * 64 + packed + half(0.5))
    integers = repeated(0, -3, -2, -1, -4, -3, -2, -1, times=32)
    np.testing.assert_array_equal(found[0], integers * (repeated(*scales, times=16) - 32) * 0.5)


SIX_BITS = bytes([0xC1, 2, 3, 4, 0x85, 6, 7, 8, 0xA9, 0xB0, 0xC0, 0xD0])
"""Scales 1, 2, 3, 4, 0x39, 0, 0, 0 and minima 5, 6, 7, 8, 0x2a, 11, 12, 13."""
SCALES, MINIMA = (1, 2, 3, 4, 0x39, 0, 0, 0), (5, 6, 7, 8, 0x2A, 11, 12, 13)


def test_q4_k_has_eight_groups_with_scales_and_minima_of_six_bits() -> None:
    found = decode("Q4_K", half(0.5, 0.25) + SIX_BITS + bytes([0x93]) * 128)
    integers = repeated(3, 9, 3, 9, 3, 9, 3, 9, times=32)
    expected = repeated(*SCALES, times=32) * 0.5 * integers - repeated(*MINIMA, times=32) * 0.25
    np.testing.assert_array_equal(found[0], expected)


def test_q5_k_takes_the_fifth_bits_of_a_group_from_one_bit_of_32_bytes() -> None:
    found = decode("Q5_K", half(0.5, 0.25) + SIX_BITS + bytes([0b0001_0010]) * 32 + bytes([0x93]) * 128)
    integers = repeated(3, 25, 3, 9, 19, 9, 3, 9, times=32)
    expected = repeated(*SCALES, times=32) * 0.5 * integers - repeated(*MINIMA, times=32) * 0.25
    np.testing.assert_array_equal(found[0], expected)


def test_q6_k_joins_nibbles_and_pairs_of_bits_less_32() -> None:
    scales = range(-8, 8)
    low = bytes([0x21]) * 32 + bytes([0x43]) * 32
    found = decode("Q6_K", low * 2 + bytes([0b11_10_01_00]) * 64 + struct.pack("16b", *scales) + half(0.5))
    integers = repeated(*[0x01 - 32, 0x13 - 32, 0x22 - 32, 0x34 - 32] * 2, times=32)
    np.testing.assert_array_equal(found[0], integers * repeated(*scales, times=16) * 0.5)


def test_iq4_nl_looks_nibbles_up() -> None:
    np.testing.assert_array_equal(decode("IQ4_NL", half(0.5) + NIBBLES), [np.concatenate([IQ4, IQ4[::-1]]) * 0.5])


def test_iq4_xs_looks_nibbles_up_under_scales_of_six_bits_less_32() -> None:
    packed = struct.pack("<H", 0b01_00_00_00_00_00_11_10) + bytes([0xF1, 0, 0, 0x20])
    found = decode("IQ4_XS", half(0.5) + packed + NIBBLES * 8)
    scales = np.array([0x21, 0x3F, 0, 0, 0, 0, 0, 0x12], np.float32) - 32
    np.testing.assert_array_equal(found.reshape(8, 32), np.concatenate([IQ4, IQ4[::-1]]) * scales[:, None] * 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in DECODERS if name != "F64"])
def test_random_blocks_are_what_ggmls_package_reads(name: str) -> None:
    quants = pytest.importorskip("gguf.quants")
    kind = GGML_TYPES[NUMBERS[name]]
    raw = np.random.default_rng(0).integers(0, 256, (64, kind.block_bytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        expected = quants.dequantize(raw, quants.GGMLQuantizationType(NUMBERS[name]))
        found = decode(name, *map(bytes, raw))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("model", [real_models.smollm2, real_models.gemma3_270m, real_models.qwen25_coder])
def test_every_tensor_of_a_real_file_is_what_ggmls_package_reads(model: Callable[[], Path]) -> None:
    """Of large tensors the first and the last rows: the package takes minutes for all."""
    gguf = pytest.importorskip("gguf")
    path = model()
    file, peers = open_gguf(path), gguf.GGUFReader(path).tensors
    assert {peer.name for peer in peers} == set(file.tensors)
    for peer in peers:
        for rows in (slice(0, 512), slice(-512, None)):
            expected = gguf.quants.dequantize(peer.data[rows], peer.tensor_type)
            np.testing.assert_array_equal(read_rows(file, peer.name, rows), expected, err_msg=peer.name)
