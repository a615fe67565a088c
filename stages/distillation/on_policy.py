"""Responses that the student draws, in micro-batches."""

from collections.abc import Sequence

import jax
import numpy as np

from stages.distillation.config import DistillationConfig, OnPolicyConfig
from stages.distillation.loss import DistillationBatch
from stages.engine.cluster.mesh import Cluster
from stages.engine.cluster.placement import of_this_process
from stages.engine.data.batching import Batch, Group, Ids
from stages.engine.data.layout import choose_layout, shared_prefix
from stages.engine.models.axes import base_of_this_process
from stages.engine.models.dropout import TokenNumbers
from stages.engine.models.lora import Weights
from stages.engine.models.source import LoadedModel
from stages.engine.rollout.native.sampler import NativeSampler
from stages.engine.rollout.together import sample_together


class StudentSampler:
    """Draws one response to each prompt of an update; it depends on seed, update and row alone."""

    def __init__(
        self,
        model: LoadedModel,
        prompts: Sequence[Ids],
        config: DistillationConfig,
        on_policy: OnPolicyConfig,
        cluster: Cluster,
    ) -> None:
        """Prepares the sampler and the shape of micro-batches.

        Args:
            model: the student.
            prompts: of the whole dataset.
            config: of the stage.
            on_policy: how responses are drawn.
            cluster: whose devices share the rows.
        """
        self._prompts = [[int(token) for token in prompt] for prompt in prompts]
        self._cluster = cluster
        self._numbered = config.adapter_dropout > 0
        self._num_shared = shared_prefix(prompts)
        self._sampler = NativeSampler(
            model.frozen._replace(base=base_of_this_process(cluster, model.frozen.base)),
            model.opened.tokenizer.eos_ids,
            on_policy.sampling,
            group_size=1,
            micro_batch=min(on_policy.rollout_micro_batch, -(-config.batch_size // jax.process_count())),
            prompts=self._prompts,
            seed=config.seed,
        )
        self._layout = choose_layout(
            prompts,
            batch_size=config.batch_size,
            micro_batch=config.train_micro_batch,
            group_size=1,
            max_response=on_policy.sampling.max_response_tokens,
            num_devices=cluster.num_row_shares,
        )

    def draw(self, weights: Weights, rows: Sequence[int], update: int) -> list[DistillationBatch]:
        """Responses to the prompts of some rows, drawn by these weights; all processes of a cluster do it together."""
        prompts = [self._prompts[row] for row in rows]
        drawn = sample_together(self._sampler, of_this_process(self._cluster, weights), prompts, rows, update)
        groups = [Group(prompt, responses) for prompt, responses in zip(prompts, drawn.tokens, strict=True)]
        parts = self._layout.parts(len(groups))
        batches = [self._layout.pack(groups[part]) for part in parts]
        numbers = [self._numbers(part, len(groups), batch, update) for part, batch in zip(parts, batches, strict=True)]
        return [DistillationBatch(*pair, None) for pair in zip(batches, numbers, strict=True)]

    def _numbers(self, part: slice, num_groups: int, batch: Batch, update: int) -> TokenNumbers | None:
        if not self._numbered:
            return None
        owners = self._layout.owners(part, num_groups, batch, self._num_shared)
        return TokenNumbers(np.full(len(owners), update, np.int32), owners)
