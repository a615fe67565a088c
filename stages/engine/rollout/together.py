"""Responses drawn by all processes of a cluster, each to its share of the prompts."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils
from jaxtyping import Bool, Float32, Int32

from stages.engine.models.lora import Weights
from stages.engine.rollout.native.sampler import NativeSampler, Responses


class Drawn(NamedTuple):
    """Responses of one process, or of all with a leading axis, as arrays of one shape for all processes."""

    tokens: Int32[np.ndarray, "*N P G R"]
    lengths: Int32[np.ndarray, "*N P G"]
    logprobs: Float32[np.ndarray, "*N P G R"]
    ended: Bool[np.ndarray, "*N P G"]


def sample_together(
    sampler: NativeSampler, adapter: Weights, prompts: Sequence[Sequence[int]], prompt_ids: Sequence[int], step: int
) -> Responses:
    """As `NativeSampler.sample`, which gives the same responses: every process calls it, and gets all of them."""
    num_processes = jax.process_count()
    if num_processes == 1:
        return sampler.sample(adapter, prompts, prompt_ids, step)
    size = -(-len(prompts) // num_processes)
    start = jax.process_index() * size
    # All shares have one size; what is missing to it is drawn twice and dropped.
    mine = [min(at, len(prompts) - 1) for at in range(start, start + size)]
    own = sampler.sample(adapter, [prompts[at] for at in mine], [prompt_ids[at] for at in mine], step)
    return _responses(Drawn(*multihost_utils.process_allgather(_drawn(own))), len(prompts))


def _drawn(responses: Responses) -> Drawn:
    lengths = np.array([[len(tokens) for tokens in group] for group in responses.tokens], np.int32)
    tokens = np.zeros(responses.logprobs.shape, np.int32)
    for prompt, group in enumerate(responses.tokens):
        for sample, ids in enumerate(group):
            tokens[prompt, sample, : len(ids)] = ids
    return Drawn(tokens, lengths, responses.logprobs, responses.ended)


def _responses(drawn: Drawn, num_prompts: int) -> Responses:
    tokens, lengths, logprobs, ended = (np.concatenate(part)[:num_prompts] for part in drawn)
    return Responses(
        tokens=[
            [tuple(ids[:length].tolist()) for ids, length in zip(*group, strict=True)]
            for group in zip(tokens, lengths, strict=True)
        ],
        logprobs=logprobs,
        ended=ended,
    )
