"""How tokens stand where matrices multiply them."""

import jax
import jax.numpy as jnp
import numpy as np

from stages.engine.models.tokens import along_one_axis


def test_one_device_has_the_tokens_of_all_rows_one_after_another() -> None:
    x = jnp.arange(24.0).reshape(2, 3, 4)
    np.testing.assert_array_equal(along_one_axis(x), x.reshape(6, 4))


def test_devices_that_share_tokens_keep_rows_and_tokens_apart() -> None:
    with jax.set_mesh(jax.make_mesh((1,), ("data",))):
        assert along_one_axis(jnp.zeros((2, 3, 4))).shape == (2, 3, 4)
