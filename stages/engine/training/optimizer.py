"""The optimizer that the settings describe."""

import optax

from stages.engine.training.config import OptimizerConfig


def make_schedule(config: OptimizerConfig, num_updates: int) -> optax.Schedule:
    """Learning rate by update: a linear rise over `warmup_steps`, then the chosen decay to 0 at `num_updates`."""
    peak, decay_steps = config.learning_rate, max(num_updates - config.warmup_steps, 1)
    after = {
        "constant": optax.constant_schedule(peak),
        "linear": optax.linear_schedule(peak, 0.0, decay_steps),
        "cosine": optax.cosine_decay_schedule(peak, decay_steps),
    }[config.decay]
    # The first update of a warm-up is not wasted on a rate of 0.
    warmup = optax.linear_schedule(peak / (config.warmup_steps + 1), peak, config.warmup_steps)
    return optax.join_schedules([warmup, after], [config.warmup_steps]) if config.warmup_steps else after


def make_optimizer(config: OptimizerConfig, num_updates: int) -> optax.GradientTransformation:
    """Clipping by global norm, then AdamW (arXiv 1711.05101)."""
    return optax.chain(
        optax.clip_by_global_norm(config.max_grad_norm),
        optax.adamw(
            make_schedule(config, num_updates),
            b1=config.beta1,
            b2=config.beta2,
            eps=config.epsilon,
            weight_decay=config.weight_decay,
        ),
    )
