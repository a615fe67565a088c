"""Group relative policy optimization, top to bottom."""

from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float32

from stages.contract import ARTIFACT_FILE, ModelArtifact, StageContext
from stages.engine.data.batching import Branch, Tree, round_up
from stages.engine.data.loader import batch_rows
from stages.engine.data.records import read_dataset
from stages.engine.models.lora import save_adapter
from stages.engine.models.source import load_trained_model
from stages.engine.objectives.advantages import ADVANTAGES
from stages.engine.rewards.catalog import REWARDS
from stages.engine.rl.experience import Experience, make_experience, micro_batches
from stages.engine.rl.filtering import mixed_groups
from stages.engine.rl.losses import PolicyBatch, PolicyLoss, make_policy_loss
from stages.engine.rl.rollouts import Rollout, collect, make_prompts
from stages.engine.rollout.native.sampler import NativeSampler
from stages.engine.rollout.scoring import make_scorer
from stages.engine.training.loop import TOKENS, Numbers, train
from stages.engine.training.optimizer import make_optimizer, make_schedule
from stages.engine.training.report import write_training_report
from stages.engine.training.state import TrainState, advance, start_state
from stages.engine.training.step import Loss, add_gradients, loss_means, make_gradient, make_update
from stages.grpo.config import GrpoConfig


def run(context: StageContext, config: GrpoConfig) -> None:
    """Trains the input model's adapter on rewards of its own responses."""
    model = load_trained_model(context, config.model.lora, config.seed)
    prompts = make_prompts(read_dataset(context.input_dir("dataset")), model.chat)
    sampler = NativeSampler(
        model.frozen,
        model.chat.tokenizer.eos_ids,
        config.sampling,
        group_size=config.group_size,
        micro_batch=config.rollout_micro_batch,
        prompts=[prompt.ids for prompt in prompts],
        seed=config.seed,
    )
    # One width for every group: a width that followed the responses would compile anew for each.
    width = round_up(
        max(len(prompt.ids) for prompt in prompts) + config.group_size * config.sampling.max_response_tokens
    )
    num_updates = config.num_steps * (config.prompts_per_step // config.mini_batch)
    optimizer = make_optimizer(config.optimizer, num_updates)
    schedule = make_schedule(config.optimizer, num_updates)
    gradient = make_gradient(make_policy_loss(model.frozen.graph, _loss_settings(config)))
    update = make_update(optimizer)
    advantages_of = jax.jit(ADVANTAGES[config.advantages])
    score, reference = make_scorer(model.frozen, config.sampling.temperature), model.adapter

    def with_reference(experience: Experience) -> PolicyBatch:
        return PolicyBatch(experience, score(reference, experience.batch) if config.kl_coef else None)

    def step(done: int, state: TrainState) -> tuple[TrainState, Numbers]:
        rows = batch_rows(len(prompts), config.prompts_per_step, config.seed, done)
        rollout = collect(
            sampler, state.weights, prompts, rows, step=done, chat=model.chat, reward=REWARDS[config.reward]
        )
        advantages = np.asarray(advantages_of(rollout.rewards))
        mixed = mixed_groups(rollout.rewards)
        weights, moments, losses, norms = state.weights, state.optimizer, list[Loss](), list[jax.Array]()
        for start in range(0, config.prompts_per_step, config.mini_batch):
            kept = start + np.flatnonzero(mixed[start : start + config.mini_batch])
            if len(kept) == 0:
                continue
            parts = micro_batches(_pack(rollout, kept, advantages, width), config.train_micro_batch)
            whole = reduce(add_gradients, (gradient(weights, model.frozen.base, with_reference(p)) for p in parts))
            applied = update(weights, moments, whole)
            weights, moments = applied.weights, applied.optimizer
            losses.append(whole.loss)
            norms.append(applied.grad_norm)
        numbers = {
            **_rollout_numbers(rollout, mixed),
            "optimizer/learning_rate": jnp.asarray(schedule(state.counters.updates)),
            "optimizer/updates": len(losses),
            **(loss_means(losses) | {"optimizer/grad_norm": norms[-1]} if losses else {}),
        }
        trained = sum(len(response) for row in np.flatnonzero(mixed) for response in rollout.responses.tokens[row])
        counters = advance(state.counters, updates=len(losses), rows=len(rows), tokens=trained)
        return TrainState(weights, moments, counters), numbers

    start = start_state(model.adapter, optimizer, config.seed)
    end = train(context, start, num_steps=config.num_steps, save_every_steps=config.save_every_steps, step=step)
    checkpoint = context.output_dir("checkpoint")
    adapter = save_adapter(checkpoint, end.weights, config.model.lora)
    artifact = ModelArtifact(base=model.base, adapter=adapter)
    (checkpoint / ARTIFACT_FILE).write_text(artifact.model_dump_json())
    write_training_report(context.output_dir("report"), end.counters)


def _loss_settings(config: GrpoConfig) -> PolicyLoss:
    return PolicyLoss(
        group_size=config.group_size,
        temperature=config.sampling.temperature,
        clip_low=config.clip_low,
        clip_high=config.clip_high,
        kl_coef=config.kl_coef,
        aggregation=config.aggregation,
    )


def _pack(rollout: Rollout, kept: np.ndarray, advantages: Float32[np.ndarray, "P G"], width: int) -> Experience:
    groups = [
        Tree(rollout.prompts[row].ids, [Branch((), response) for response in rollout.responses.tokens[row]])
        for row in kept
    ]
    return make_experience(groups, rollout.responses.logprobs[kept], advantages[kept], width)


def _rollout_numbers(rollout: Rollout, mixed: Bool[np.ndarray, " P"]) -> dict[str, float]:
    return {
        "reward/mean": float(rollout.rewards.mean()),
        "rollout/mixed_groups": float(mixed.mean()),
        "rollout/ended": float(rollout.responses.ended.mean()),
        "rollout/response_tokens": rollout.num_tokens / rollout.rewards.size,
        TOKENS: float(rollout.num_tokens),
    }
