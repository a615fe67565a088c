"""Accuracy on problems with a known answer, top to bottom."""

import json
import time
from statistics import fmean

import jax

from stages.contract import ARTIFACT_FILE, ReportArtifact, StageContext
from stages.engine.cluster.agreement import Agreement
from stages.engine.cluster.mesh import all_devices
from stages.engine.data.records import Row, read_dataset
from stages.engine.models.opened import open_model
from stages.engine.models.source import check_length, load_model
from stages.engine.rewards.catalog import REWARDS
from stages.engine.rewards.scoring import score
from stages.engine.rollout.native.sampler import NativeSampler
from stages.engine.rollout.together import sample_together
from stages.errors import PreemptedError
from stages.evaluation.config import EvaluationConfig

SAMPLES_FILE = "samples.jsonl"


def run(context: StageContext, config: EvaluationConfig) -> None:
    """Answers every row of the dataset once and scores the answers."""
    opened = open_model(context)
    rows = read_dataset(context.input_dir("dataset"))
    prompts = [opened.chat.prompt_ids(row.messages) for row in rows]
    check_length(opened, max(map(len, prompts)) + config.sampling.max_response_tokens)
    model = load_model(opened)
    sampler = NativeSampler(
        model.frozen,
        model.chat.tokenizer.eos_ids,
        config.sampling,
        group_size=1,
        micro_batch=config.rollout_micro_batch,
        prompts=prompts,
        seed=config.seed,
    )
    samples: list[dict[str, str | float]] = []
    correct = num_tokens = 0.0
    started = time.monotonic()
    context.beat(0, len(rows), {})
    stops, at_once = Agreement(all_devices()), config.rollout_micro_batch * jax.process_count()
    for start in range(0, len(rows), at_once):
        if stops.wished(context.should_stop()):
            raise PreemptedError(f"stopped after {start} of {len(rows)} answers; they are drawn again")
        here = range(start, min(start + at_once, len(rows)))
        responses = sample_together(sampler, model.adapter, [prompts[row] for row in here], here, step=0)
        for row, (tokens,), (ended,) in zip(here, responses.tokens, responses.ended, strict=True):
            samples.append(_score(rows[row], model.chat.reply_text(tokens), len(tokens), bool(ended), config))
        correct += sum(float(sample["accuracy"]) for sample in samples[start:])
        num_tokens += sum(float(sample["response_tokens"]) for sample in samples[start:])
        seconds = time.monotonic() - started
        shown = {"accuracy": correct / len(samples), "tokens_per_second": num_tokens / seconds}
        context.beat(len(samples), len(rows), shown)
    metrics = {
        "accuracy": fmean(float(sample["accuracy"]) for sample in samples),
        "strict_accuracy": fmean(float(sample["strict_accuracy"]) for sample in samples),
        "truncated_rate": fmean(float(sample["truncated"]) for sample in samples),
        "mean_response_tokens": fmean(float(sample["response_tokens"]) for sample in samples),
    }
    folder = context.output_dir("report")
    (folder / SAMPLES_FILE).write_text("".join(json.dumps(sample, sort_keys=True) + "\n" for sample in samples))
    report = ReportArtifact(metrics=metrics, samples_file=SAMPLES_FILE, num_samples=len(samples))
    (folder / ARTIFACT_FILE).write_text(report.model_dump_json())
    context.log_metrics(len(rows), {f"evaluation/{name}": value for name, value in metrics.items()})


def _score(row: Row, reply: str, num_tokens: int, ended: bool, config: EvaluationConfig) -> dict[str, str | float]:
    return {
        "id": row.id,
        "prompt": row.messages[-1].content,
        "response": reply,
        "answer": row.answer,
        "accuracy": score(REWARDS[config.accuracy], reply, row.answer, row.id),
        "strict_accuracy": REWARDS["exact"](reply, row.answer),
        "truncated": float(not ended),
        "response_tokens": num_tokens,
    }
