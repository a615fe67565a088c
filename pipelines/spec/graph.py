"""The nodes of a pipeline as they are known before they are connected."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipelines.spec.diagnostics import Place, Problems, did_you_mean
from pipelines.spec.expand import Instance, selects
from pipelines.spec.tree import Scalar, Table
from stages.catalog import STAGES
from stages.contract import Artifact, ModelArtifact, ReportArtifact

SELECT_BEST_OUTPUTS: Mapping[str, type[Artifact]] = {"checkpoint": ModelArtifact, "report": ReportArtifact}
"""What the action `select_best` hands on."""
TYPE_KEYS = ("uses", "gate", "action")
"""The key that says what a node is."""

_NAME = re.compile(r"([^\[\]]+)(?:\[([^\[\]]*)\])?")
_SHOWN_INSTANCES = 5


@dataclass(frozen=True)
class Draft:
    """A node with every reference to values worked in.

    Attributes:
        instance: its id and, of a fanned-out stage, its cell.
        place: where its name stands.
        own: what the file says about it.
        table: the same with the defaults of the pipeline under it.
        problems: gets what is wrong with it; its instances' are put together in the end.
    """

    instance: Instance
    place: Place
    own: Table
    table: Table
    problems: Problems

    @property
    def id(self) -> str:
        return self.instance.id

    @property
    def path(self) -> tuple[str, str]:
        return ("stages", self.instance.group)

    def text(self, key: str) -> str | None:
        """The value of a key that holds text."""
        found = self.table.get(key)
        return found.value if isinstance(found, Scalar) and isinstance(found.value, str) else None

    @property
    def kind(self) -> str | None:
        """The kind of a stage; none for others, and for an unknown kind."""
        uses = self.text("uses")
        return uses if uses in STAGES else None


class UnknownNodeError(ValueError):
    """A name that stands for no node; the message says what to write."""


class Graph:
    """Nodes by id, and the ids that a name in the file stands for."""

    def __init__(self, instances: Mapping[str, tuple[Instance, ...]], drafts: Sequence[Draft]) -> None:
        """Instances has all names of the file, those of faulty stages without any instance."""
        self._instances = instances
        self._drafts = {draft.id: draft for draft in drafts}

    @property
    def ids(self) -> list[str]:
        """All ids, in the order of the file."""
        return list(self._drafts)

    def find(self, name: str, bare: bool) -> tuple[str, ...]:
        """The ids that a name with or without `[…]` stands for; none when those are faulty, which is reported.

        Args:
            name: such as `sft`, `dpo[*]` or `dpo[beta=0.1]`.
            bare: whether a name alone stands for all instances of a fanned-out stage.

        Raises:
            UnknownNodeError: it stands for nothing.
        """
        if name in self._drafts:
            return (name,)
        found = _NAME.fullmatch(name)
        group, selector = (found[1], found[2]) if found else (name, None)
        if group not in self._instances:
            raise UnknownNodeError(f"unknown stage `{group}`{did_you_mean(group, self._instances)}")
        instances = self._instances[group]
        if not instances:
            return ()
        if instances[0].id == group:
            raise UnknownNodeError(f"`{group}` is a single stage: leave out `[{selector}]`")
        if selector is None and not bare:
            ways = f"`{instances[0].id}` is one of it, `{group}[*]` the list, and `for_each: {group}` goes with each"
            raise UnknownNodeError(f"`{group}` is fanned out: {ways}")
        ids = tuple(instance.id for instance in instances if selects(selector or "*", instance))
        if not ids:
            more = ", …" if len(instances) > _SHOWN_INSTANCES else ""
            known = ", ".join(f"`{instance.id}`" for instance in instances[:_SHOWN_INSTANCES])
            raise UnknownNodeError(f"no instance `{name}`; there are {known}{more}")
        return ids

    def outputs(self, node: str) -> Mapping[str, type[Artifact]] | None:
        """What a node makes, by name; none when its kind is faulty, which is reported."""
        draft = self._drafts[node]
        if draft.kind is not None:
            return STAGES[draft.kind].outputs
        if draft.text("action") == "select_best":
            return SELECT_BEST_OUTPUTS
        return {} if {"gate", "action"} & set(draft.table.entries) else None

    def what(self, node: str) -> str:
        """What a message calls a node without outputs."""
        return "a gate" if "gate" in self._drafts[node].table.entries else "an action"
