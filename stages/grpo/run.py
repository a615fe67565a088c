"""Group relative policy optimization, top to bottom."""

import json
from collections.abc import Iterable

import jax
import numpy as np
from jaxtyping import Bool

from stages.contract import StageContext
from stages.engine.cluster.mesh import Cluster, all_devices
from stages.engine.cluster.placement import of_this_process
from stages.engine.data.layout import Layout, choose_layout
from stages.engine.data.loader import batch_rows
from stages.engine.data.records import read_dataset
from stages.engine.models.axes import base_of_this_process
from stages.engine.models.opened import OpenedModel, open_model
from stages.engine.models.source import check_length, load_trained_model, write_model
from stages.engine.objectives.advantages import ADVANTAGES
from stages.engine.rewards.catalog import REWARDS
from stages.engine.rl.filtering import mixed_groups
from stages.engine.rl.learner import Learned, PolicyLearner
from stages.engine.rl.losses import PolicyLoss
from stages.engine.rl.rollouts import Prompt, Rollout, collect, make_prompts
from stages.engine.rollout.native.sampler import NativeSampler
from stages.engine.training.loop import SKIPPED, TOKENS, Numbers, train
from stages.engine.training.optimizer import make_rule
from stages.engine.training.report import write_training_report
from stages.engine.training.state import TrainState, advance, final_weights, start_state
from stages.engine.training.step import loss_means
from stages.errors import UserError
from stages.grpo.config import GrpoConfig


def run(context: StageContext, config: GrpoConfig) -> None:
    """Trains the input model's adapter on rewards of its own responses."""
    opened = open_model(context)
    prompts = _read_prompts(context, config, opened)
    cluster = all_devices(config.mesh)
    model = load_trained_model(opened, config.model, config.seed, cluster)
    sampler = NativeSampler(
        model.frozen._replace(base=base_of_this_process(cluster, model.frozen.base)),
        model.chat.tokenizer.eos_ids,
        config.sampling,
        group_size=config.group_size,
        micro_batch=min(config.rollout_micro_batch, -(-config.prompts_per_step // jax.process_count())),
        prompts=[prompt.ids for prompt in prompts],
        seed=config.seed,
    )
    num_updates = config.num_steps * (config.prompts_per_step // config.mini_batch)
    rule = make_rule(config.optimizer, num_updates)
    learner = PolicyLearner(
        model.frozen,
        model.trained,
        _loss_settings(config),
        rule,
        layout=_layout_of(prompts, config, cluster),
        cluster=cluster,
    )
    advantages_of = jax.jit(ADVANTAGES[config.advantages])

    def step(done: int, state: TrainState) -> tuple[TrainState, Numbers]:
        rows = batch_rows(len(prompts), config.prompts_per_step, config.seed, done)
        reward = REWARDS[config.reward]
        policy = of_this_process(cluster, state.weights)
        rollout = collect(sampler, policy, prompts, rows, step=done, chat=model.chat, reward=reward)
        mixed, advantages = mixed_groups(rollout.rewards), np.asarray(advantages_of(rollout.rewards))
        weights, moments, learned = state.weights, state.optimizer, list[Learned]()
        for start in range(0, config.prompts_per_step, config.mini_batch):
            kept = start + np.flatnonzero(mixed[start : start + config.mini_batch])
            if len(kept):
                learned.append(learner.learn(weights, moments, rollout, advantages, kept))
                weights, moments = learned[-1].weights, learned[-1].optimizer
        numbers = {**_numbers(rollout, mixed, learned), SKIPPED: moments.skipped.astype(float)}
        trained = rollout.num_tokens(np.flatnonzero(mixed).tolist())
        counters = advance(state.counters, updates=len(learned), rows=len(rows), tokens=trained)
        return TrainState(weights, moments, state.best, counters), numbers

    def show(done: int) -> Iterable[str]:
        for row in batch_rows(len(prompts), config.prompts_per_step, config.seed, done):
            yield json.dumps({"row": row, "prompt": model.chat.reply_text(prompts[row].ids)}, ensure_ascii=False)

    end = train(
        context,
        start_state(model.trained, rule, config.seed, cluster),
        cluster=cluster,
        rule=rule,
        num_steps=config.num_steps,
        save_every_steps=config.save_every_steps,
        step=step,
        show=show,
    )
    write_model(context.output_dir("checkpoint"), model, of_this_process(cluster, final_weights(end)), config.model)
    write_training_report(context.output_dir("report"), end)


def _read_prompts(context: StageContext, config: GrpoConfig, opened: OpenedModel) -> list[Prompt]:
    prompts = make_prompts(read_dataset(context.input_dir("dataset")), opened.chat)
    if config.prompts_per_step > len(prompts):
        raise UserError(
            f"prompts_per_step is {config.prompts_per_step}, but the dataset has {len(prompts)} rows: one that is "
            "sampled twice in a step gets the same responses twice; raise group_size instead"
        )
    check_length(opened, max(len(prompt.ids) for prompt in prompts) + config.sampling.max_response_tokens)
    return prompts


def _layout_of(prompts: list[Prompt], config: GrpoConfig, cluster: Cluster) -> Layout:
    return choose_layout(
        [prompt.ids for prompt in prompts],
        batch_size=config.mini_batch,
        micro_batch=config.train_micro_batch,
        group_size=config.group_size,
        max_response=config.sampling.max_response_tokens,
        num_devices=cluster.num_row_shares,
    )


def _loss_settings(config: GrpoConfig) -> PolicyLoss:
    return PolicyLoss(
        max_response=config.sampling.max_response_tokens,
        temperature=config.sampling.temperature,
        clip_low=config.clip_low,
        clip_high=config.clip_high,
        kl_coef=config.kl_coef,
        aggregation=config.aggregation,
        remat=config.model.remat,
    )


def _numbers(rollout: Rollout, mixed: Bool[np.ndarray, " P"], learned: list[Learned]) -> dict[str, jax.Array | float]:
    all_tokens = rollout.num_tokens(range(len(mixed)))
    numbers: dict[str, jax.Array | float] = {
        "reward/mean": float(rollout.rewards.mean()),
        "rollout/mixed_groups": float(mixed.mean()),
        "rollout/ended": float(rollout.responses.ended.mean()),
        "rollout/response_tokens": all_tokens / rollout.rewards.size,
        "optimizer/updates": float(len(learned)),
        TOKENS: float(all_tokens),
    }
    if learned:
        numbers |= loss_means([update.loss for update in learned])
        numbers |= {"optimizer/grad_norm": learned[-1].grad_norm, "optimizer/learning_rate": learned[-1].learning_rate}
    return numbers
