"""The sections of gates and actions in a pipeline file."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from pipelines.spec.durations import Duration
from stages.contract import Strict
from stages.store.aliases import ALIAS_PATTERN


def _as_tuple(value: object) -> object:
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


References = Annotated[
    tuple[str, ...],
    Field(min_length=1),
    BeforeValidator(_as_tuple),
    WithJsonSchema(
        {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]},
    ),
]
"""One reference, or a list of them; `${stages.ID[*].outputs.NAME}` is one for each instance."""


class ConditionalSection(Strict):
    """What gates and actions have in common."""

    if_: Annotated[str | None, Field(alias="if")] = None
    """A condition for this to happen, such as `${params.seed} == 17` or `${stages.ID.outputs.report.METRIC} > 0`."""


class EvalGateInputs(Strict):
    """What a gate looks at."""

    report: str
    """The report whose metrics are required: `${stages.ID.outputs.report}`."""


class EvalGateSection(ConditionalSection):
    """Conditions that must hold for the pipeline to go on."""

    gate: Literal["eval"]
    """The kind of gate; `eval` looks at an evaluation."""
    inputs: EvalGateInputs
    """What it looks at."""
    require: Annotated[tuple[str, ...], Field(min_length=1)]
    """Conditions, such as `accuracy >= 0.5` or `delta_low(accuracy, '${stages.ID.outputs.report}') > 0`."""
    on_fail: Literal["stop", "skip_downstream", "ask"] = "stop"
    """Whether the run fails, only what needs this gate is skipped, or a person is asked."""
    needs: tuple[str, ...] = ()
    """Stages, gates and actions that come first though nothing is taken from them."""


class AskSection(Strict):
    """How a person is asked."""

    approvers: tuple[str, ...] = ()
    """Who should answer, for the people who read it."""
    timeout: Annotated[Duration, Field(gt=0)] = 7 * 86400.0
    """How long a run waits for an answer."""


class HumanGateSection(ConditionalSection):
    """A person decides whether the pipeline goes on."""

    gate: Literal["human"]
    """The kind of gate; `human` asks a person."""
    needs: Annotated[tuple[str, ...], Field(min_length=1)]
    """Stages, gates and actions that come first: what the person decides on."""
    ask: AskSection = AskSection()
    """How a person is asked."""


class SetAliasInputs(Strict):
    """What an alias points to."""

    checkpoint: str
    """The model: `${stages.ID.outputs.checkpoint}`."""
    report: str | None = None
    """The evaluation that speaks for it, which later gates compare with as `${aliases.NAME}`."""


class SetAliasSettings(Strict):
    """Which alias."""

    alias: Annotated[str, Field(pattern=ALIAS_PATTERN, max_length=64)]
    """Its name in the store."""


class SetAliasSection(ConditionalSection):
    """Points an alias of the store at a checkpoint."""

    action: Literal["set_alias"]
    """The kind of action."""
    inputs: SetAliasInputs
    """What the alias points to."""
    with_: Annotated[SetAliasSettings, Field(alias="with")]
    """Which alias."""
    needs: tuple[str, ...] = ()
    """Stages, gates and actions that come first though nothing is taken from them."""


class SelectBestInputs(Strict):
    """What is compared."""

    candidates: References
    """The models, such as `${stages.ID[*].outputs.checkpoint}`."""
    reports: References
    """The evaluation of each of them, in the same order."""


class SelectBestSettings(Strict):
    """How they are compared."""

    metric: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    """The number of the reports that decides."""
    mode: Literal["max", "min"] = "max"
    """Whether the highest or the lowest is the best."""


class SelectBestSection(ConditionalSection):
    """Takes the candidate whose report is the best: its outputs are `checkpoint` and `report`."""

    action: Literal["select_best"]
    """The kind of action."""
    inputs: SelectBestInputs
    """What is compared."""
    with_: Annotated[SelectBestSettings, Field(alias="with")]
    """How they are compared."""
    needs: tuple[str, ...] = ()
    """Stages, gates and actions that come first though nothing is taken from them."""


GATES: Mapping[str, type[Strict]] = {"eval": EvalGateSection, "human": HumanGateSection}
ACTIONS: Mapping[str, type[Strict]] = {"set_alias": SetAliasSection, "select_best": SelectBestSection}
