"""How well a model expects what it did not write: texts, replies, or the assistant's turns of conversations."""

import math
from typing import NamedTuple

import numpy as np

from stages.contract import StageContext
from stages.engine.cluster.mesh import all_devices
from stages.engine.data.batching import Group
from stages.engine.data.examples import TokenRow, fit_lengths
from stages.engine.models.opened import OpenedModel, open_model
from stages.engine.models.source import load_model
from stages.engine.training.examples import token_rows
from stages.evaluation.config import EvaluationConfig
from stages.evaluation.logprobs import response_logprobs
from stages.evaluation.report import Sample, write_report


class _Target(NamedTuple):
    """A row, and what of it the model has to expect."""

    id: str
    group: Group
    num_tokens: int
    text: str


def measure_perplexity(context: StageContext, config: EvaluationConfig) -> None:
    """Scores every row; a text's last token is the one that ends it, as a reply's is."""
    opened = open_model(context)
    targets = _targets(context, opened)
    cluster = all_devices()
    found = response_logprobs(
        load_model(opened, cluster),
        [target.group for target in targets],
        micro_batch=config.rollout_micro_batch,
        cluster=cluster,
        beat=lambda done: context.beat(done, len(targets), {}),
    )
    nats = [-float(logprobs[0]) for logprobs in found]
    num_tokens = sum(target.num_tokens for target in targets)
    num_bytes = sum(len(target.text.encode()) for target in targets)
    others = {"perplexity": math.exp(math.fsum(nats) / num_tokens), "nats_per_token": math.fsum(nats) / num_tokens}
    if num_bytes:
        others["bits_per_byte"] = math.fsum(nats) / math.log(2) / num_bytes
    samples = [_sample(target, nll) for target, nll in zip(targets, nats, strict=True)]
    write_report(context, samples, {"mean_row_nats": "mean_row_nats"}, others)


def _targets(context: StageContext, opened: OpenedModel) -> list[_Target]:
    tokens = list(token_rows(context.input_dir("dataset"), opened))
    groups = fit_lengths(tokens, opened.checkpoint.arch.max_positions, "error").groups
    # Rows without anything to expect are left out of the groups.
    kept = [row for row in tokens if isinstance(row, TokenRow) and row.learnt.any()]
    return [
        _Target(row.id, group, int(np.sum(row.learnt)), opened.tokenizer.decode(row.ids[row.learnt].tolist()))
        for row, group in zip(kept, groups, strict=True)
    ]


def _sample(target: _Target, nats: float) -> Sample:
    return {
        "id": target.id,
        "text": target.text,
        "nats": nats,
        "tokens": target.num_tokens,
        "mean_row_nats": nats / target.num_tokens,
    }
