"""Settings of preference losses, and what they refuse."""

import pytest
from pydantic import ValidationError

from stages.dpo.config import DpoConfig

BASE = {
    "model": {"lora": {"rank": 2, "alpha": 4.0}},
    "optimizer": {"learning_rate": 1e-3},
    "num_steps": 1,
    "batch_size": 2,
    "seed": 1,
}


def config(loss: dict, **settings: object) -> DpoConfig:
    return DpoConfig.model_validate({**BASE, "loss": loss, **settings}, strict=False)


def combined(*kinds: str) -> dict:
    return {"kind": "combination", "terms": [{"weight": 0.5, "loss": {"kind": kind}} for kind in kinds]}


@pytest.mark.parametrize(
    ("loss", "needs_reference", "takes_labels", "needs_baseline"),
    [
        ({"kind": "dpo"}, True, False, False),
        ({"kind": "robust", "flip_rate": 0.1}, True, False, False),
        ({"kind": "ipo"}, True, False, False),
        ({"kind": "hinge"}, True, False, False),
        ({"kind": "simpo"}, False, False, False),
        ({"kind": "orpo"}, False, False, False),
        ({"kind": "kto"}, True, True, True),
        ({"kind": "kto", "baseline": "zero"}, True, True, False),
        (combined("simpo", "sft"), False, False, False),
        (combined("simpo", "dpo", "sft"), True, False, False),
        (combined("kto", "sft"), True, False, True),
    ],
    ids=str,
)
def test_a_loss_says_what_it_reads(loss: dict, needs_reference: bool, takes_labels: bool, needs_baseline: bool) -> None:
    found = config(loss)
    assert (found.needs_reference, found.takes_labels, found.needs_baseline) == (
        needs_reference,
        takes_labels,
        needs_baseline,
    )


def test_a_single_loss_is_a_sum_of_one() -> None:
    (term,) = config({"kind": "dpo", "beta": 0.3}).terms
    assert (term.weight, term.loss.kind) == (1.0, "dpo")


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ({"kind": "dpo", "beta": 0.0}, "loss.dpo.beta\n  Input should be greater than 0"),
        ({"kind": "dpo", "label_smoothing": 0.5}, "loss.dpo.label_smoothing\n  Input should be less than 0.5"),
        ({"kind": "robust"}, "loss.robust.flip_rate\n  Field required"),
        ({"kind": "sft"}, "does not match any of the expected tags"),
        ({"kind": "dpo", "margin": 1.0}, "loss.dpo.margin\n  Extra inputs are not permitted"),
        (combined("dpo"), "at least 2 items"),
        (combined("sft", "dpo"), "the first must compare responses"),
        (combined("dpo", "sft", "dpo"), "dpo stands there more than once"),
        (combined("dpo", "combination"), "does not match any of the expected tags"),
    ],
    ids=str,
)
def test_a_loss_that_makes_no_sense_is_refused(loss: dict, message: str) -> None:
    with pytest.raises(ValidationError) as error:
        config(loss)
    assert message in str(error.value)


def test_a_reference_that_no_loss_reads_is_not_computed_before() -> None:
    with pytest.raises(ValidationError, match="a loss of kind simpo has no reference"):
        config({"kind": "simpo"}, reference_logprobs="precomputed")
    assert config({"kind": "dpo"}, reference_logprobs="precomputed").reference_logprobs == "precomputed"
