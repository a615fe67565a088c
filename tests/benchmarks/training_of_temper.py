"""Updates of our supervised stages, for `training_speed.py`: what a step of them computes, without what it saves."""

from collections.abc import Sequence
from functools import partial, reduce
from pathlib import Path

import jax
import numpy as np
from flax import nnx
from speed_of_temper import make_model
from speed_worker import Pass, serve, sizes_given
from training_examples import SETS, Pair

from stages.dpo.config import DpoConfig, DpoLossConfig
from stages.dpo.loss import make_preference_loss
from stages.dpo.scoring import make_response_scorer
from stages.dpo.task import make_task
from stages.engine.cluster.mesh import ALONE
from stages.engine.data.batching import Group
from stages.engine.data.chat import Chat
from stages.engine.data.packing import choose_packing
from stages.engine.data.preferences import Preferences
from stages.engine.data.tokenizer import load_tokenizer
from stages.engine.models.config import TrainedModelConfig
from stages.engine.models.lora import Frozen, Weights, split
from stages.engine.training.config import AdamWConfig
from stages.engine.training.optimizer import make_rule
from stages.engine.training.state import start_state
from stages.engine.training.step import add_gradients, make_gradient, make_update
from stages.engine.training.task import Task
from stages.sft.loss import make_sft_loss

TINY = Path(__file__).parents[2] / "pipelines" / "tiny"
"""Its tokenizer could show rows in words, which only errors do."""
MICRO_BATCH = 8
"""As the stages have it, unless they are told otherwise."""
OPTIMIZER = AdamWConfig(learning_rate=1e-5)


def make_sft(frozen: Frozen, pairs: Sequence[Pair], batch_size: int) -> Task:
    examples = [Group(pair.text[:1], [pair.text[1:]]) for pair in pairs]
    packing = choose_packing(examples, batch_size=batch_size, micro_batch=MICRO_BATCH)
    return Task(
        make_sft_loss(frozen.graph),
        len(examples),
        lambda rows, _: [part.batch for part in packing.pack([examples[row] for row in rows])],
        tokens_of=lambda batch: batch,
        show=str,
    )


def make_dpo(frozen: Frozen, weights: Weights, pairs: Sequence[Pair], batch_size: int) -> Task:
    groups = [Group(pair.prompt, [pair.chosen, pair.rejected]) for pair in pairs]
    names, desirable = list(map(str, range(len(groups)))), np.tile(np.array([True, False]), (len(groups), 1))
    preferences = Preferences(names, groups, desirable, np.zeros(len(groups), np.float32), 0)
    packing = choose_packing(groups, batch_size=batch_size, micro_batch=MICRO_BATCH)
    config = DpoConfig(
        model=TrainedModelConfig(lora=None),
        optimizer=OPTIMIZER,
        num_steps=1,
        batch_size=batch_size,
        seed=0,
        loss=DpoLossConfig(kind="dpo"),
    )
    score = make_response_scorer(frozen, 2, ALONE)
    return make_task(
        preferences,
        packing,
        make_preference_loss(frozen.graph, config.terms, 2),
        lambda _, batches: [score(weights, packed) for packed in batches],
        None,
        config,
        Chat(load_tokenizer(TINY)),
    )


def make_pass(frozen: Frozen, weights: Weights, task: Task, batch_size: int) -> Pass:
    """All updates of the data, one after the other."""
    rule = make_rule(OPTIMIZER, 1)
    gradient, update = make_gradient(task.loss), make_update(rule)
    state = start_state(weights, rule, seed=0)

    def run() -> None:
        nonlocal state
        for start in range(0, task.num_rows, batch_size):
            rows = range(start, start + batch_size)
            batches = task.complete(state.weights, rows, 0, task.batches(rows, 0))
            whole = reduce(add_gradients, (gradient(state.weights, frozen.base, batch) for batch in batches))
            applied = update(state.weights, state.optimizer, whole)
            state = state._replace(weights=applied.weights, optimizer=applied.optimizer)
        jax.block_until_ready(state.weights)

    return run


def main() -> None:
    sizes = sizes_given()
    frozen, weights = split(make_model(sizes), nnx.Param)
    passes = dict[str, Pass]()
    for name, make_pairs in SETS.items():
        pairs = make_pairs(sizes)
        for what, make in (("sft", make_sft), ("dpo", partial(make_dpo, weights=weights))):
            passes[f"{what} {name}"] = make_pass(
                frozen, weights, make(frozen, pairs=pairs, batch_size=sizes.rows), sizes.rows
            )
    serve(passes)


if __name__ == "__main__":
    main()
