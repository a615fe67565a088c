"""Settings of `prepare`."""

from typing import Annotated

from pydantic import Field

from stages.contract import Seed, SourceUri, StageConfigBase


class PrepareConfig(StageConfigBase):
    """Problems from one source, in splits that share no problem."""

    source: SourceUri
    """Where problems come from: a task as in `reasoning_gym://chain_sum?max_digits=2`, or a file of JSON lines, each an
    object with `question` and `answer`."""
    num_train: Annotated[int, Field(ge=1)]
    """Problems to train on."""
    num_validation: Annotated[int, Field(ge=0)] = 0
    """Problems to choose settings on."""
    num_held_out: Annotated[int, Field(ge=1)]
    """Problems that only the evaluation sees."""
    system_prompt: str | None = None
    """Content of a system message before each problem; none leaves it to the chat template."""
    seed: Seed
    """Seed of the source and of the split."""
