"""Settings of `sft`."""

from typing import Literal

from stages.contract import Added
from stages.engine.training.config import SupervisedConfig


class SftConfig(SupervisedConfig):
    """Supervised fine-tuning on responses, conversations or texts."""

    learn: Literal["all_turns", "last_turn"] = Added("all_turns")
    """Which turns of the assistant are learnt in a conversation: all after those that its row says are given, or the
    last one."""
    too_long: Literal["error", "drop", "truncate"] = Added("error")
    """What becomes of a row of more than `max_tokens`: an error, left out, or cut after so many. What is left out is
    counted in the report, and so is a cut row without anything to learn in what is kept."""
