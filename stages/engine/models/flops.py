"""Floating point operations that a decoder needs for a batch: what its mathematics asks for, recomputation not counted.

A product and its sum are two operations. Norms, activations and adapters are left out, as in the count of PaLM
(arXiv 2204.02311, appendix B).
"""

import numpy as np

from stages.engine.data.batching import Batch
from stages.engine.models.architecture import Architecture


def training_flops(arch: Architecture, batch: Batch, *, frozen: bool) -> float:
    """Of the forward and the backward pass.

    Args:
        arch: of the decoder.
        batch: that it is trained on.
        frozen: whether only adapters are trained: a frozen matrix has a product for the derivative by its inputs, and
            none for that by itself.
    """
    return (2 if frozen else 3) * linear_flops(arch, batch) + 3 * attention_flops(arch, batch)


def linear_flops(arch: Architecture, batch: Batch) -> float:
    """Of all products with weights: in the layers for each token, with the output matrix for each target."""
    heads = (2 * arch.num_heads + 2 * arch.num_kv_heads) * arch.head_size * arch.width
    if arch.experts is None:
        fed = 3 * arch.width * arch.hidden
    else:
        fed = arch.width * (3 * arch.experts.hidden * arch.experts.per_token + arch.experts.count)
    layers = arch.num_layers * (heads + fed) * np.sum(batch.segment_ids != 0)
    return float(2 * (layers + arch.width * arch.vocab_size * np.sum(batch.target_mask)))


def attention_flops(arch: Architecture, batch: Batch) -> float:
    """Of scores and mixed values: a token meets what is before it in its sequence, and itself."""
    met = np.where(batch.segment_ids != 0, batch.positions + 1, 0).astype(np.int64)
    num_near, near = 0, met
    if arch.window is not None:
        num_near = arch.num_layers - arch.num_layers // arch.window.period
        near = np.minimum(met, arch.window.size)
    pairs = (arch.num_layers - num_near) * np.sum(met) + num_near * np.sum(near)
    return float(4 * arch.num_heads * arch.head_size * pairs)
