"""Smaller settings for the attempts that follow one that ran out of memory; a stage's identity does not hold them."""

import json
from collections.abc import Mapping, Sequence
from typing import TypeVar

from stages.contract import StageConfigBase
from stages.store.attempts import AttemptRecord

ConfigT = TypeVar("ConfigT", bound=StageConfigBase)


def lowered_settings(
    config: StageConfigBase, divisors: Mapping[str, int], history: Sequence[AttemptRecord], run_id: str
) -> dict[str, int]:
    """What the next attempt of a run has in place of the settings of the pipeline's file.

    Args:
        config: the settings as the file has them.
        divisors: setting to the number that divides it after each want of memory.
        history: attempts at the stage, newest first; what they had stays for the rest of their run.
        run_id: the run.
    """
    # One that ended before it began, while it waited for devices, has nothing lowered and says nothing.
    told = (record for record in history if record.cause == "oom" or record.lowered)
    newest = next((record for record in told if record.run_id == run_id), None)
    if newest is None:
        return {}
    if newest.cause != "oom":
        return newest.lowered
    return {name: max(1, value // divisors[name]) for name, value in _values(config, divisors, newest.lowered).items()}


def with_settings(config: ConfigT, settings: Mapping[str, int]) -> ConfigT:
    """A copy with other values.

    Raises:
        ValidationError: the settings do not take one of them.
    """
    return type(config).model_validate_json(json.dumps({**config.model_dump(mode="json"), **settings}))


def relief(config: StageConfigBase, divisors: Mapping[str, int], lowered: Mapping[str, int]) -> str | None:
    """What can still be lowered after an attempt with `lowered` ran out of memory, in words; None if nothing can."""
    lower = [
        f"{name} {value} → {max(1, value // divisors[name])}"
        for name, value in _values(config, divisors, lowered).items()
        if value > 1
    ]
    return ", ".join(lower) or None


def _values(config: StageConfigBase, divisors: Mapping[str, int], lowered: Mapping[str, int]) -> dict[str, int]:
    settings = config.model_dump(include=set(divisors))
    return {name: lowered.get(name, settings[name]) for name in divisors}
