"""Which implementation computes attention, and that it makes no difference."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from stages.engine.models.attention import Part, Scoring, attend_parts
from stages.engine.models.fused_attention import implementation_for, masked_attention

pytestmark = pytest.mark.usefixtures("quickly_compiled")


@pytest.mark.parametrize(
    ("platform", "dtype", "shape", "keys", "expected"),
    [
        ("cpu", jnp.bfloat16, (2, 64, 4, 64), 64, "xla"),
        ("tpu", jnp.bfloat16, (2, 64, 4, 64), 64, "xla"),
        ("gpu", jnp.float32, (2, 64, 4, 64), 64, "xla"),
        ("gpu", jnp.bfloat16, (2, 64, 4, 64), 64, "cudnn"),
        ("gpu", jnp.float16, (2, 64, 4, 128), 128, "cudnn"),
        ("gpu", jnp.bfloat16, (2, 64, 4, 256), 64, "xla"),
        ("gpu", jnp.bfloat16, (2, 63, 4, 64), 64, "xla"),
        ("gpu", jnp.bfloat16, (2, 64, 4, 64), 65, "xla"),
    ],
)
def test_the_flash_kernel_is_for_half_precision_on_gpus_and_sizes_that_it_takes(
    platform: str, dtype: type[jnp.floating], shape: tuple[int, ...], keys: int, expected: str
) -> None:
    assert implementation_for(platform, jax.ShapeDtypeStruct(shape, dtype), keys) == expected


def drawn(dtype: type[jnp.floating], length: int) -> tuple[Array, Array, Array, Array]:
    shapes = [(2, length, heads, 64) for heads in (4, 2, 2)]
    q, k, v = (jax.random.normal(jax.random.key(n), shape, dtype) for n, shape in enumerate(shapes))
    return q, k, v, jnp.tri(length, dtype=bool)[None]


def two_parts(q: Array, k: Array, v: Array, mask: Array) -> Array:
    half, positions = k.shape[1] // 2, jnp.arange(k.shape[1])[None]
    parts = [
        Part(k[:, here], v[:, here], mask[..., here], positions[:, here])
        for here in (slice(0, half), slice(half, None))
    ]
    return attend_parts(q, parts, Scoring(0.125))


def test_keys_in_one_sequence_give_the_result_of_keys_in_parts() -> None:
    q, k, v, mask = drawn(jnp.float32, 16)
    found = attend_parts(q, [Part(k, v, mask, jnp.arange(16)[None])], Scoring(0.125))
    np.testing.assert_allclose(found, two_parts(q, k, v, mask), atol=1e-6)


@pytest.mark.gpu
def test_the_flash_kernel_gives_the_result_of_the_formula_and_its_gradient() -> None:
    q, k, v, mask = drawn(jnp.bfloat16, 64)
    assert implementation_for(jax.default_backend(), q, 64) == "cudnn"

    def gradients(fused: bool) -> tuple[Array, ...]:
        def total(q: Array, k: Array, v: Array) -> Array:
            out = masked_attention(q, k, v, mask, 0.125) if fused else two_parts(q, k, v, mask)
            return jnp.square(out.astype(jnp.float32)).sum()

        return jax.jit(jax.grad(total, (0, 1, 2)))(q, k, v)

    for found, expected in zip(gradients(True), gradients(False), strict=True):
        np.testing.assert_allclose(found.astype(jnp.float32), expected.astype(jnp.float32), atol=0.05, rtol=0.05)
