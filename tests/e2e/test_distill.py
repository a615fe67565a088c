"""The shipped pipeline of a student and its teacher: scored, learnt, learnt on its own replies, and reused."""

from collections.abc import Callable

import pytest
from shipped_pipeline import Shipped


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_student_learns_from_its_teacher_before_and_while_it_speaks(shipped: Callable[[str], Shipped]) -> None:
    pipeline = shipped("distill.yaml")
    assert pipeline.run() == 0
    (evaluated,) = [found for found in pipeline.metrics("distillation") if "validation_loss" in found]
    assert evaluated["validation_loss"] < 0.5
    assert evaluated["step"] == 10
    assert pipeline.plan() == 0
