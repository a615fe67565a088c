"""Passes of Tunix's decoder under its trainer's own loss, for `model_speed.py`; run in `.venv-tunix`."""

# pyright: reportMissingImports=false

from contextlib import AbstractContextManager

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh
from speed_worker import Sizes, serve, sizes_given
from tunix.models.qwen3 import model as qwen3
from tunix.sft import peft_trainer
from tunix.sft.utils import build_positions_from_mask, make_causal_attn_mask


def make_mesh() -> AbstractContextManager[object]:
    """Of one device, in whose context its models are made and run."""
    return jax.set_mesh(Mesh(np.array(jax.devices()).reshape(1, 1), ("fsdp", "tp")))


def make_model(sizes: Sizes) -> qwen3.Qwen3:
    config = qwen3.ModelConfig(
        num_layers=sizes.num_layers,
        vocab_size=sizes.vocab_size,
        embed_dim=sizes.width,
        hidden_dim=sizes.hidden,
        num_heads=sizes.num_heads,
        head_dim=sizes.head_size,
        num_kv_heads=sizes.num_kv_heads,
        rope_theta=1_000_000,
        norm_eps=1e-6,
        use_tied_embedding=True,
    )
    return qwen3.Qwen3(config, rngs=nnx.Rngs(0))


def main() -> None:
    sizes = sizes_given()
    with make_mesh():
        model = make_model(sizes)
        ids = np.random.default_rng(0).integers(0, sizes.vocab_size, (sizes.rows, sizes.tokens))
        tokens, mask = jnp.asarray(ids), jnp.ones(ids.shape, bool)
        inputs = tokens, mask, build_positions_from_mask(mask), make_causal_attn_mask(mask)
        forward = nnx.jit(peft_trainer._default_loss_fn)
        both = nnx.jit(nnx.value_and_grad(peft_trainer._default_loss_fn))

        def run_forward() -> None:
            jax.block_until_ready(forward(model, *inputs))

        def run_both() -> None:
            jax.block_until_ready(both(model, *inputs))

        serve({"forward": run_forward, "both": run_both})


if __name__ == "__main__":
    main()
