"""Commands that people are told to give."""

from collections.abc import Callable
from pathlib import Path

from pipelines.spec.command_line import command_line
from pipelines.spec.nodes import Pipeline


def test_a_command_has_what_was_laid_over_the_file(load: Callable[..., Pipeline], pipeline_file: Path) -> None:
    pipeline = load("params.seed=3", replace={"stages:\n": "profiles: {tiny: {}}\nstages:\n"}, profile="tiny")
    told = f"temper approve {pipeline_file} ok --profile tiny --set params.seed=3"
    assert command_line(pipeline, "approve", "ok") == told
    assert command_line(load(), "run") == f"temper run {pipeline_file}"
