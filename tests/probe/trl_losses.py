"""Run by the interpreter of .venv-trl: `trl_losses.py KIND REQUEST` trains by TRL and prints the loss of each update.

KIND is `sft` or `dpo`. REQUEST is a JSON file that `trl_trial.py` writes. All weights are trained, in
float32, and examples come in the order of the file. Losses are a JSON list, in the last line.
"""

# pyright: reportMissingImports=false

import json
import sys
from pathlib import Path

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer


class OnTokens(DPOTrainer):
    """Takes token ids, where TRL's own tokenises messages."""

    def _prepare_dataset(self, dataset, *args, **kwargs):
        return dataset


def settings(request: dict) -> dict:
    """What both trainers are told."""
    return {
        "output_dir": request["folder"],
        "per_device_train_batch_size": request["batch_size"],
        "max_steps": request["num_steps"],
        "learning_rate": request["learning_rate"],
        "max_grad_norm": request["max_grad_norm"],
        "lr_scheduler_type": "constant",
        "weight_decay": 0.0,
        "optim": "adamw_torch",
        "train_sampling_strategy": "sequential",
        "max_length": None,
        "bf16": False,
        "use_cpu": True,
        "gradient_checkpointing": False,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }


def make_trainer(kind: str, request: dict) -> SFTTrainer | DPOTrainer:
    model = AutoModelForCausalLM.from_pretrained(request["model"], dtype=torch.float32)
    shared = {"model": model, "processing_class": AutoTokenizer.from_pretrained(request["model"])}
    if kind == "dpo":
        columns = ("prompt_ids", "chosen_ids", "rejected_ids")
        data = Dataset.from_list([dict(zip(columns, example, strict=True)) for example in request["examples"]])
        return OnTokens(args=DPOConfig(**settings(request), beta=request["beta"]), train_dataset=data, **shared)
    rows = [
        {"input_ids": prompt + response, "completion_mask": [0] * len(prompt) + [1] * len(response)}
        for prompt, response in request["examples"]
    ]
    arguments = SFTConfig(**settings(request), completion_only_loss=True)
    return SFTTrainer(args=arguments, train_dataset=Dataset.from_list(rows), **shared)


def keep_losses(trainer: SFTTrainer | DPOTrainer) -> list[float]:
    """Of each update as they are, which logs may round; filled while the trainer trains."""
    compute, losses = trainer.compute_loss, []

    def compute_and_keep(*args, **kwargs):
        loss = compute(*args, **kwargs)
        losses.append(loss.item())
        return loss

    trainer.compute_loss = compute_and_keep
    return losses


def main() -> None:
    kind, request = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
    trainer = make_trainer(kind, request)
    losses = keep_losses(trainer)
    trainer.train()
    sys.stdout.write("\n" + json.dumps(losses) + "\n")


if __name__ == "__main__":
    main()
