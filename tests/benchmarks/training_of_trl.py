"""Updates of TRL's trainers, for `training_speed.py`; run in `.venv-trl`. Batches are padded, each to its longest."""

# pyright: reportMissingImports=false, reportCallIssue=false

import logging
import sys
import tempfile
from pathlib import Path

from datasets import Dataset
from speed_of_transformers import make_model
from speed_worker import Pass, serve, sizes_given
from training_examples import NUM_UPDATES, SETS
from transformers import AutoTokenizer, PrinterCallback
from transformers.utils import logging as transformers_logging
from trl import DPOConfig, SFTConfig, SFTTrainer

sys.path.insert(0, str(Path(__file__).parents[1] / "probe"))

from trl_losses import OnTokens, settings

TINY = Path(__file__).parents[2] / "pipelines" / "tiny"
"""Its tokenizer says what to pad with."""


def main() -> None:
    transformers_logging.set_verbosity_error()
    logging.disable(logging.WARNING)
    sizes, passes = sizes_given(), dict[str, Pass]()
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    with tempfile.TemporaryDirectory() as folder:
        shared = settings(
            {
                "folder": folder,
                "batch_size": sizes.rows,
                "num_steps": NUM_UPDATES,
                "learning_rate": 1e-5,
                "max_grad_norm": 1.0,
            }
        ) | {"logging_strategy": "no"}
        for name, make_pairs in SETS.items():
            pairs = make_pairs(sizes)
            texts = Dataset.from_list([{"input_ids": pair.text} for pair in pairs])
            columns = ("prompt_ids", "chosen_ids", "rejected_ids")
            preferences = Dataset.from_list([dict(zip(columns, pair, strict=True)) for pair in pairs])
            sft = SFTTrainer(
                make_model(sizes), args=SFTConfig(**shared), train_dataset=texts, processing_class=tokenizer
            )
            dpo = OnTokens(
                make_model(sizes),
                ref_model=make_model(sizes),
                args=DPOConfig(**shared),
                train_dataset=preferences,
                processing_class=tokenizer,
            )
            for trainer in (sft, dpo):
                # It would write between the answers.
                trainer.remove_callback(PrinterCallback)
            passes |= {f"sft {name}": sft.train, f"dpo {name}": dpo.train}
        serve(passes)


if __name__ == "__main__":
    main()
