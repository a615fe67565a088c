"""Pairs of responses as a task of supervised training."""

import json
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32

from stages.engine.data.batching import Group
from stages.engine.data.chat import Chat
from stages.engine.data.packing import PackedBatch, Packing, choose_packing, spread
from stages.engine.data.preferences import Preferences
from stages.engine.data.scored import scored_as_wholes
from stages.engine.training.numbering import token_numbers
from stages.engine.training.step import LossFunction
from stages.engine.training.task import Task
from stages.reward_model.config import RewardModelConfig
from stages.reward_model.loss import RewardBatch


def make_task(
    pairs: Preferences, loss: LossFunction[RewardBatch], config: RewardModelConfig, chat: Chat, num_devices: int
) -> Task[RewardBatch]:
    """What is trained on.

    Args:
        pairs: the rows.
        loss: of a micro-batch.
        config: says how pairs are packed, what their margins count, and whether adapters drop inputs.
        chat: of the trained model.
        num_devices: that share the rows.
    """
    groups = [scored_as_wholes(group) for group in pairs.groups]
    margins = pairs.margins * np.float32(config.margin_scale)
    packing = choose_packing(
        groups, batch_size=config.batch_size, micro_batch=config.train_micro_batch, num_devices=num_devices
    )

    def batches(rows: Sequence[int], update: int | None) -> list[RewardBatch]:
        packed = packing.pack([groups[row] for row in rows])
        numbered = update if config.adapter_dropout else None
        return [_make_batch(part, margins[list(rows)], packing, numbered) for part in packed]

    def show(row: int) -> str:
        return _show(row, pairs.groups[row], chat)

    return Task(loss, len(groups), batches, lambda batch: batch.packed.batch, show)


def _make_batch(
    packed: PackedBatch, margins: Float32[np.ndarray, " P"], packing: Packing, update: int | None
) -> RewardBatch:
    return RewardBatch(packed, spread(packed, margins), token_numbers(packing, packed, update))


def _show(row: int, group: Group, chat: Chat) -> str:
    prompt, chosen, rejected = map(chat.tokenizer.decode, (group.prompt, *group.responses))
    return json.dumps({"row": row, "prompt": prompt, "chosen": chosen, "rejected": rejected}, ensure_ascii=False)
