"""Updates of Tunix's trainers, for `training_speed.py`; run in `.venv-tunix`.

Its trainers compile a program for each shape, so examples are padded to the longest of the data, as in its examples.
"""

# pyright: reportMissingImports=false

from collections.abc import Sequence

import jax
import numpy as np
import optax
from flax import nnx
from speed_of_tunix import make_mesh, make_model
from speed_worker import Pass, serve, sizes_given
from training_examples import SETS, updates
from tunix.sft import peft_trainer
from tunix.sft.dpo import dpo_trainer
from tunix.sft.utils import build_positions_from_mask, make_causal_attn_mask

RATE = 1e-5


def padded(rows: Sequence[list[int]], length: int, *, left: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Ids, and which of them are real."""
    ids, mask = np.zeros((len(rows), length), np.int32), np.zeros((len(rows), length), bool)
    for number, row in enumerate(rows):
        here = slice(length - len(row), None) if left else slice(len(row))
        ids[number, here], mask[number, here] = row, True
    return ids, mask


def sft_inputs(batch) -> list[peft_trainer.TrainingInput]:
    longest = max(len(pair.text) for update in batch for pair in update)
    return [peft_trainer.TrainingInput(*padded([pair.text for pair in update], longest)) for update in batch]


def dpo_inputs(batch) -> list[dpo_trainer.TrainingInput]:
    pairs = [pair for update in batch for pair in update]
    prompt = max(len(pair.prompt) for pair in pairs)
    response = max(len(ids) for pair in pairs for ids in (pair.chosen, pair.rejected))
    return [
        dpo_trainer.TrainingInput(
            *padded([pair.prompt for pair in update], prompt, left=True),
            *padded([pair.chosen for pair in update], response),
            *padded([pair.rejected for pair in update], response),
        )
        for update in batch
    ]


def model_input(given: peft_trainer.TrainingInput) -> dict:
    mask = given.input_mask
    return {
        "input_tokens": given.input_tokens,
        "input_mask": mask,
        "positions": build_positions_from_mask(mask),
        "attention_mask": make_causal_attn_mask(mask),
    }


def make_pass(trainer: peft_trainer.PeftTrainer, inputs: list) -> Pass:
    # It trains on and is not closed.
    trainer.is_managed_externally = True

    def run() -> None:
        trainer.train(inputs)
        jax.block_until_ready(nnx.state(trainer.model))

    return run


def main() -> None:
    sizes, passes = sizes_given(), {}
    plain = peft_trainer.TrainingConfig(eval_every_n_steps=10**6)
    preferences = dpo_trainer.DPOTrainingConfig(eval_every_n_steps=10**6)
    with make_mesh():
        for name, make_pairs in SETS.items():
            batches = updates(make_pairs(sizes), sizes)
            sft = peft_trainer.PeftTrainer(make_model(sizes), optax.adamw(RATE), plain).with_gen_model_input_fn(
                model_input
            )
            passes[f"sft {name}"] = make_pass(sft, sft_inputs(batches))
            dpo = dpo_trainer.DPOTrainer(make_model(sizes), make_model(sizes), optax.adamw(RATE), preferences)
            passes[f"dpo {name}"] = make_pass(dpo, dpo_inputs(batches))
        serve(passes)


if __name__ == "__main__":
    main()
