"""qwix's adapters and quantised kernels within a block, as a training step wants them."""

import threading
from collections.abc import Sequence
from functools import reduce

import jax
import qwix
from flax import nnx
from jaxtyping import Array, Float, PyTree

from stages.engine.models.dropout import DROPOUT, dropout_noise


class LowRankProvider(qwix.LoraProvider):
    """Adds adapters to linear layers, with two changes.

    qwix's own dropout is always on, with one mask for a whole batch: here inputs are dropped only where the block has
    keys for its tokens. A kernel that is restored from few bits is restored again in the backward pass, and not kept
    from the forward pass in full.
    """

    def __init__(self, rules: Sequence[qwix.QuantizationRule]) -> None:
        """Takes one rule for each layer, whose `module_path` is its path in the block."""
        super().__init__(rules)
        self._dot_general_fn = _dot_restored
        self._running = threading.local()

    def process_model_inputs(
        self, model: nnx.Module, model_args: Sequence[PyTree], model_kwargs: dict[str, PyTree]
    ) -> tuple[nnx.Module, Sequence[PyTree], dict[str, PyTree]]:
        self._running.block = model
        return super().process_model_inputs(model, model_args, model_kwargs)

    def process_model_output(self, method_name: str, model_output: PyTree) -> PyTree:
        self._running.block = None
        return super().process_model_output(method_name, model_output)

    def dot_general(
        self,
        lhs: Float[Array, "..."],
        rhs: PyTree,
        dimension_numbers: jax.lax.DotDimensionNumbers,
        precision: jax.lax.PrecisionLike = None,
        preferred_element_type: jax.typing.DTypeLike | None = None,
        out_sharding: jax.sharding.NamedSharding | None = None,
    ) -> Float[Array, "..."]:
        out = super().dot_general(lhs, rhs, dimension_numbers, precision, preferred_element_type, out_sharding)
        keys = vars(self._running.block).get(DROPOUT)
        rule, _ = self._get_current_rule_and_op_id("dot_general", repeated_call=True)
        if keys is None or not isinstance(rule, qwix.LoraRule):
            return out
        layer = reduce(getattr, rule.module_path.split("/"), self._running.block)
        noise = dropout_noise(lhs, keys[...], keys.rate, rule.module_path)
        return out + (noise @ layer.kernel_lora_a[...]) @ layer.kernel_lora_b[...] * (rule.alpha / rule.rank)


def _dot_restored(
    lhs: Float[Array, "..."],
    rhs: qwix.QArray,
    dimension_numbers: jax.lax.DotDimensionNumbers,
    out_sharding: jax.sharding.NamedSharding | None = None,
) -> Float[Array, "..."]:
    def dot(lhs: Float[Array, "..."], rhs: qwix.QArray) -> Float[Array, "..."]:
        return qwix.dot_general(lhs, rhs, dimension_numbers, out_sharding=out_sharding)

    return jax.checkpoint(dot)(lhs, rhs)
