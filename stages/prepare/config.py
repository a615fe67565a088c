"""Settings of `prepare`."""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from stages.contract import Added, RowsKind, Seed, SourceUri, StageConfigBase, Strict
from stages.engine.data.formats.names import Column, FormatChoice


class DataSource(Strict):
    """One of several sources of rows, and what its rows are."""

    source: SourceUri
    """A file or folder of rows, a data set of the Hub, a recipe or a task, as in the setting of one source."""
    weight: Annotated[float, Field(gt=0)] = 1.0
    """Of each split, the source gives the part that its weight is of all weights."""
    format: FormatChoice = "auto"
    """What its rows are; without it their columns tell."""
    columns: dict[Column, Annotated[str, Field(min_length=1)]] = Field(default_factory=dict)
    """What columns are called that have other names than usual, such as `{prompt: frage}`."""
    split: Annotated[str, Field(min_length=1)] | None = None
    """Which of the splits that it is published in, where there are several."""


class LengthLimits(Strict):
    """Which rows are left out for their length; in tokens it is the training stage that looks at it."""

    min_characters: Annotated[int, Field(ge=0)] = 0
    """Of all that is said in a row."""
    max_characters: Annotated[int, Field(ge=1)] | None = None
    """Of all that is said in a row."""
    max_messages: Annotated[int, Field(ge=1)] | None = None
    """Of a conversation, prompt and replies together."""


Share = Annotated[float, Field(ge=0, lt=1)]


class PrepareConfig(StageConfigBase):
    """Rows of one source or a mixture, in splits that share no prompt."""

    source: Annotated[
        Annotated[SourceUri, Tag("uri")] | Annotated[tuple[DataSource, ...], Field(min_length=1), Tag("mixture")],
        Discriminator(lambda value: "uri" if isinstance(value, str) else "mixture"),
    ]
    """Where rows come from: a task as in `reasoning_gym://chain_sum?max_digits=2`, a file or folder of rows, a data set
    of the Hub as in `hf://datasets/org/name@revision`, a recipe as in `recipe.py:create_dataset`; or a list of
    such, with weights."""
    num_train: Annotated[int, Field(ge=1)] | None = None
    """Rows to train on; without it all that the other splits leave, which a generated task has no end of."""
    num_validation: Annotated[int, Field(ge=0)] = 0
    """Rows to choose settings on."""
    num_held_out: Annotated[int, Field(ge=0)] = 0
    """Rows that only the evaluation sees."""
    validation_share: Share = Added(0.0)
    """Part of all rows used, beside `num_validation`."""
    held_out_share: Share = Added(0.0)
    """Part of all rows used, beside `num_held_out`."""
    system_prompt: str | None = None
    """Content of a system message before each prompt that has none; without it that is left to the chat template."""
    rows: RowsKind | None = Added(None)
    """What rows become, where that is not what their format says: a problem, and of a preference the chosen reply, may
    become a `conversation`."""
    deduplicate: Literal["auto", "exact", "normalised", "off"] = Added("auto")
    """Of rows that are the same the first is kept: the same but for case and white space, or exactly. Problems are the
    same when their questions are. `auto` is `exact` for problems, else `normalised`."""
    lengths: LengthLimits | None = Added(None)
    """Which rows are left out for their length."""
    bad_rows: Literal["fail", "skip"] = Added("fail")
    """Whether rows that are not what their format says end the stage, or are left out and counted."""
    seed: Seed
    """Seed of the source and of the split."""

    @property
    def sources(self) -> tuple[DataSource, ...]:
        """The mixture; of one source where there is only one."""
        return (DataSource(source=self.source),) if isinstance(self.source, str) else self.source

    @model_validator(mode="after")
    def _check_splits(self) -> "PrepareConfig":
        if self.validation_share + self.held_out_share >= 1:
            raise ValueError("validation_share and held_out_share leave no row to train on")
        return self
