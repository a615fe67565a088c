"""Pairs of replies of which the better one says `a` and the worse one `b`."""

from collections.abc import Callable
from pathlib import Path

import pytest
from stage_trial import TINY, StageTrial, external, stored_rows

from stages.engine.data.records import Message, PreferenceRow
from stages.reward_model.config import RewardModelConfig

MakePairs = Callable[[int, int], list[PreferenceRow]]
"""From a first number and a count."""


@pytest.fixture(scope="session")
def make_pairs() -> MakePairs:
    def say(role: str, text: str) -> Message:
        return Message.model_validate({"role": role, "content": text})

    def pair(n: int) -> PreferenceRow:
        better, worse = (say("assistant", f"{n * 7 % 10} {letter} {n * 3 % 10}") for letter in "ab")
        margin = 0.5 if n % 2 else None
        return PreferenceRow(
            id=f"pair-{n:03d}", messages=(say("user", f"{n}?"),), chosen=(better,), rejected=(worse,), margin=margin
        )

    return lambda start, count: [pair(n) for n in range(start, start + count)]


@pytest.fixture(scope="session")
def make_trial(make_pairs: MakePairs) -> Callable[[Path, RewardModelConfig], StageTrial]:
    """Of the stage, on 24 pairs and evaluated on 6 others."""

    def make(folder: Path, config: RewardModelConfig) -> StageTrial:
        inputs = {
            "model": external(TINY),
            "dataset": stored_rows(folder, make_pairs(0, 24)),
            "validation": stored_rows(folder, make_pairs(50, 6)),
        }
        return StageTrial(folder, "reward_model", config, inputs)

    return make
