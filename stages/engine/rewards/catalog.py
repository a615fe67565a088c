"""Every reward, in one literal table; a reward scores the text of a response against the wanted answer."""

from collections.abc import Callable, Mapping

from stages.engine.rewards.config import RewardName
from stages.engine.rewards.rules import exact, last_integer

Reward = Callable[[str, str], float]
"""Response text and answer to a score."""

REWARDS: Mapping[RewardName, Reward] = {"last_integer": last_integer, "exact": exact}
