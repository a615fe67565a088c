"""What the backward pass of a layer finds stored, and what it computes a second time (arXiv 1604.06174)."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

from stages.engine.models.config import Remat

Arguments = ParamSpec("Arguments")
ResultT = TypeVar("ResultT")


def rematerialised(layer: Callable[Arguments, ResultT], remat: Remat) -> Callable[Arguments, ResultT]:
    """The layer, for the body of a scan: with `dots` only products with weights are stored, with `full` nothing."""
    if remat == "none":
        return layer
    policies = jax.checkpoint_policies
    policy = policies.dots_with_no_batch_dims_saveable if remat == "dots" else policies.nothing_saveable
    # A scan keeps apart what is computed twice by itself.
    return jax.checkpoint(layer, policy=policy, prevent_cse=False)
