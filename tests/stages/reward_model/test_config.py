"""Settings of a reward model."""

import pytest
from pydantic import ValidationError

from stages.reward_model.config import RewardModelConfig

GIVEN = {
    "model": {"lora": {"rank": 2, "alpha": 4.0}},
    "optimizer": {"learning_rate": 1e-4},
    "num_steps": 3,
    "batch_size": 2,
    "seed": 0,
}


def test_without_further_settings_it_is_bradley_terry_with_the_margins_of_the_rows() -> None:
    config = RewardModelConfig.model_validate(GIVEN)
    assert (config.centering_coef, config.margin_scale, config.identical_pairs) == (0, 1, "fail")


@pytest.mark.parametrize(("name", "value"), [("centering_coef", -0.1), ("margin_scale", -1.0), ("num_bins", 0)])
def test_what_makes_no_sense_is_refused(name: str, value: float) -> None:
    with pytest.raises(ValidationError, match=name):
        RewardModelConfig.model_validate({**GIVEN, name: value})
