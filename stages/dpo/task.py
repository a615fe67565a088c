"""Preferences as a task of supervised training."""

import json
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int64

from stages.dpo.baseline import Baseline
from stages.dpo.config import DpoConfig
from stages.dpo.loss import PreferenceBatch, Scales
from stages.dpo.reference import RefLogps
from stages.engine.data.batching import Group
from stages.engine.data.chat import Chat
from stages.engine.data.packing import PackedBatch, Packing, spread
from stages.engine.data.preferences import Preferences
from stages.engine.models.lora import Weights
from stages.engine.training.numbering import token_numbers
from stages.engine.training.step import LossFunction
from stages.engine.training.task import Task


def make_task(
    preferences: Preferences,
    packing: Packing,
    loss: LossFunction[PreferenceBatch],
    reference: RefLogps | None,
    baseline: Baseline | None,
    config: DpoConfig,
    chat: Chat,
) -> Task[PreferenceBatch]:
    """What is trained on.

    Args:
        preferences: the rows.
        packing: of them.
        loss: of a micro-batch.
        reference: gives its log-probabilities, where the loss has one.
        baseline: of KTO, where the loss has one.
        config: says whether adapters drop inputs in training steps.
        chat: of the trained model.
    """
    groups, desirable = preferences.groups, preferences.desirable
    lengths = np.array([_target_counts(group) for group in groups])
    whole = _shares(lengths, desirable)

    def batches(rows: Sequence[int], update: int | None) -> list[PreferenceBatch]:
        here = np.array(rows)
        # All rows of an evaluation are one mean, so its scales are those of all.
        shares = whole if update is None else _shares(lengths[here], desirable[here])
        numbered = update if config.adapter_dropout else None
        parts = packing.pack([groups[row] for row in rows])
        return [_make_batch(packed, desirable[here], shares, packing, numbered) for packed in parts]

    def complete(
        weights: Weights, rows: Sequence[int], _: int | None, batches: Sequence[PreferenceBatch]
    ) -> list[PreferenceBatch]:
        given = list(batches)
        if reference is not None:
            found = reference(rows, [batch.packed for batch in given])
            given = [batch._replace(ref_logps=logps) for batch, logps in zip(given, found, strict=True)]
        if baseline is not None:
            value = baseline(weights, rows)
            given = [batch._replace(baseline=value) for batch in given]
        return given

    def show(row: int) -> str:
        decode, (prompt, responses, _) = chat.tokenizer.decode, groups[row]
        texts = {"prompt": decode(prompt), "responses": [decode(ids) for ids in responses]}
        return json.dumps({"row": row, **texts, "desirable": desirable[row].tolist()}, ensure_ascii=False)

    return Task(
        loss=loss,
        num_rows=len(groups),
        batches=batches,
        tokens_of=lambda batch: batch.packed.batch,
        show=show,
        complete=complete,
    )


def _target_counts(group: Group) -> list[int]:
    """Tokens of each response that are learnt."""
    return [len(ids) for ids in group.responses] if group.learnt is None else [int(mask.sum()) for mask in group.learnt]


def _shares(lengths: Int64[np.ndarray, "P G"], desirable: Bool[np.ndarray, "P G"]) -> tuple[float, float, float]:
    """Groups over their desirable tokens, desirable responses and others; 0 for what there is none of."""
    parts = int((lengths * desirable).sum()), int(desirable.sum()), int((~desirable).sum())
    tokens, wanted, others = (len(lengths) / part if part else 0.0 for part in parts)
    return tokens, wanted, others


def _make_batch(
    packed: PackedBatch,
    desirable: Bool[np.ndarray, "P G"],
    shares: tuple[float, float, float],
    packing: Packing,
    update: int | None,
) -> PreferenceBatch:
    num_rows, labels = len(packed.groups), spread(packed, desirable)
    return PreferenceBatch(
        packed,
        labels,
        Scales(*(np.full(num_rows, share, np.float32) for share in shares)),
        np.zeros(labels.shape, np.float32),
        np.zeros(num_rows, np.float32),
        token_numbers(packing, packed, update),
    )
