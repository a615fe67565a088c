"""Names of the rewards."""

from typing import Literal

RewardName = Literal["last_integer", "exact"]
