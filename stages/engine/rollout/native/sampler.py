"""The native sampler: prompts in ids to responses in ids, in batches of one fixed shape."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float32, Int

from stages.engine.data.batching import round_up
from stages.engine.data.layout import shared_prefix
from stages.engine.models.lora import Frozen, Weights, bind
from stages.engine.models.transformer import Cells
from stages.engine.rollout.config import SamplingConfig
from stages.engine.rollout.native.decode import Draw
from stages.engine.rollout.native.generate import Generated, generate
from stages.engine.rollout.native.prefill import Prompts
from stages.engine.rollout.sampling import row_uniforms


@dataclass(frozen=True)
class Responses:
    """Responses to P prompts, G to each.

    Attributes:
        tokens: ids by prompt and sample, the end token included where the response has one.
        logprobs: of each token under the distribution it was drawn from, in nats; 0 after a response's end.
        ended: whether the response closed with an end token, and was not cut off.
    """

    tokens: list[list[tuple[int, ...]]]
    logprobs: Float32[np.ndarray, "P G R"]
    ended: Bool[np.ndarray, "P G"]


class NativeSampler:
    """Samples from a base under any adapter of one structure.

    A response depends on the weights, its prompt and (seed, step, prompt id, sample index): not on the batch it is
    drawn in.
    """

    def __init__(
        self,
        frozen: Frozen,
        end_tokens: frozenset[int],
        config: SamplingConfig,
        *,
        group_size: int,
        micro_batch: int,
        prompts: Sequence[Sequence[int]],
        seed: int,
    ) -> None:
        """Prepares the compiled function.

        Args:
            frozen: of the model.
            end_tokens: any of these ends a response.
            config: how tokens are drawn.
            group_size: G.
            micro_batch: prompts sampled at once; what is missing to it is filled up and dropped.
            prompts: all that will be sampled: their common beginning is computed once a batch, and the longest
                gives the batch its width.
            seed: of all samples.
        """
        self._base = frozen.base
        self._config = config
        self._group_size = group_size
        self._micro_batch = micro_batch
        self._prefix = jnp.asarray(np.array(prompts[0][: shared_prefix(prompts)], np.int32))
        self._width = round_up(max(map(len, prompts)) - len(self._prefix))
        self._seed = seed
        ends = jnp.asarray(np.array(sorted(end_tokens), np.int32))

        def run(adapter: Weights, base: Cells, prompts: Prompts, uniforms: Float[Array, "rows R"]) -> Generated:
            draw = Draw(uniforms, ends, config.temperature)
            return generate(bind(frozen.graph, adapter, base), prompts, draw)

        self._run = jax.jit(run)

    def sample(
        self, adapter: Weights, prompts: Sequence[Sequence[int]], prompt_ids: Sequence[int], step: int
    ) -> Responses:
        """Draws G responses to each prompt.

        Args:
            adapter: weights to sample with.
            prompts: ids.
            prompt_ids: a number for each prompt, the same whenever it is sampled again.
            step: another number gives other samples.
        """
        size = self._micro_batch
        starts = range(0, len(prompts), size)
        # All batches are queued before the first is waited for.
        queued = [
            self._start(adapter, prompts[start : start + size], prompt_ids[start : start + size], step)
            for start in starts
        ]
        parts = [_unpad(jax.device_get(drawn), self._group_size) for drawn in queued]
        return Responses(
            tokens=[group for part in parts for group in part.tokens][: len(prompts)],
            logprobs=np.concatenate([part.logprobs for part in parts])[: len(prompts)],
            ended=np.concatenate([part.ended for part in parts])[: len(prompts)],
        )

    def _start(
        self, adapter: Weights, prompts: Sequence[Sequence[int]], prompt_ids: Sequence[int], step: int
    ) -> Generated:
        # What fills the batch up ends with the first prompt's responses, so that nothing waits for it.
        missing = self._micro_batch - len(prompts)
        rests = [prompt[len(self._prefix) :] for prompt in (*prompts, *[prompts[0]] * missing)]
        ids, num_tokens = [*prompt_ids, *[prompt_ids[0]] * missing], self._config.max_response_tokens
        uniforms = row_uniforms(self._seed, step, ids, self._group_size, num_tokens).reshape(-1, num_tokens)
        lengths = jnp.asarray(np.array([*map(len, rests)], np.int32))
        batch = Prompts(self._prefix, _pad(rests, self._width), lengths)
        return self._run(adapter, self._base, batch, jnp.asarray(uniforms))


def _unpad(drawn: Generated, group_size: int) -> Responses:
    lengths = np.asarray(drawn.lengths).reshape(-1, group_size)
    tokens = np.asarray(drawn.tokens).reshape(*lengths.shape, -1)
    real = np.arange(tokens.shape[-1]) < lengths[:, :, None]
    return Responses(
        tokens=[
            [tuple(row[:length].tolist()) for row, length in zip(*group, strict=True)]
            for group in zip(tokens, lengths, strict=True)
        ],
        logprobs=np.where(real, np.asarray(drawn.logprobs).reshape(tokens.shape), np.float32(0)),
        ended=np.asarray(drawn.ended).reshape(lengths.shape),
    )


def _pad(rows: Sequence[Sequence[int]], width: int) -> Int[Array, "P T"]:
    padded = np.zeros((len(rows), width), np.int32)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return jnp.asarray(padded)
