"""How often a model prefers the chosen of two replies."""

import numpy as np
from jaxtyping import Float64

from stages.contract import StageContext
from stages.engine.cluster.mesh import Cluster, all_devices
from stages.engine.data.batching import Ids
from stages.engine.data.preferences import Preferences, read_preferences
from stages.engine.data.records import PreferenceRow
from stages.engine.data.same_tokens import check_same_tokens
from stages.engine.models.opened import OpenedModel, open_model
from stages.engine.models.source import load_model
from stages.engine.rollout.scoring import RewardScorer
from stages.evaluation.config import EvaluationConfig, PreferenceTask
from stages.evaluation.logprobs import response_logprobs
from stages.evaluation.report import Sample, write_report

Scores = Float64[np.ndarray, "N 2"]
"""Of the chosen and the rejected reply of each pair."""


def compare_pairs(context: StageContext, config: EvaluationConfig, task: PreferenceTask) -> None:
    """Scores both replies of every pair."""
    opened = open_model(context, reward_head="required" if task.by == "rewards" else "refused")
    folder, longest = context.input_dir("dataset"), opened.checkpoint.arch.max_positions
    pairs = read_preferences(folder, (PreferenceRow,), opened.chat, longest, "drop")
    reference = open_model(context, "reference") if context.has_input("reference") else None
    if reference is not None:
        check_same_tokens(opened.tokenizer, reference.tokenizer, "reference")
    cluster = all_devices()
    if task.by == "rewards":
        scores = _rewards(opened, pairs, config, cluster)
    else:
        scores = _logprobs(context, opened, pairs, config, cluster)
        if reference is not None:
            scores -= _logprobs(context, reference, pairs, config, cluster)
    samples = [_sample(opened, pairs, number, *score) for number, score in enumerate(scores.tolist())]
    write_report(context, samples, {"accuracy": "accuracy", "mean_margin": "margin"}, {})


def _logprobs(
    context: StageContext, opened: OpenedModel, pairs: Preferences, config: EvaluationConfig, cluster: Cluster
) -> Scores:
    num_pairs = len(pairs.groups)
    found = response_logprobs(
        load_model(opened, cluster),
        pairs.groups,
        micro_batch=config.rollout_micro_batch,
        cluster=cluster,
        beat=lambda done: context.beat(done, num_pairs, {}),
    )
    return np.stack(found)


def _rewards(opened: OpenedModel, pairs: Preferences, config: EvaluationConfig, cluster: Cluster) -> Scores:
    model = load_model(opened, cluster)
    scorer = RewardScorer(
        model.frozen, model.trained, group_size=2, micro_batch=config.rollout_micro_batch, cluster=cluster
    )
    return np.stack(scorer.score(pairs.groups)).astype(np.float64)


def _sample(opened: OpenedModel, pairs: Preferences, number: int, chosen: float, rejected: float) -> Sample:
    prompt, replies, _ = pairs.groups[number]
    texts = {name: _text(opened, reply) for name, reply in zip(("chosen", "rejected"), replies, strict=True)}
    return {
        "id": pairs.ids[number],
        "prompt": _text(opened, prompt),
        **texts,
        "chosen_score": chosen,
        "rejected_score": rejected,
        "margin": chosen - rejected,
        "accuracy": 0.5 if chosen == rejected else float(chosen > rejected),
    }


def _text(opened: OpenedModel, ids: Ids) -> str:
    return opened.tokenizer.decode([int(token) for token in ids])
