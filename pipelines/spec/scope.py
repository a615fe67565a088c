"""What a reference stands for, by where in the file it stands."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from pipelines.spec.diagnostics import KeyPath, Place, did_you_mean
from pipelines.spec.expand import Instance
from pipelines.spec.params import Params
from pipelines.spec.references import (
    AliasReference,
    EachMatrixReference,
    EachReference,
    EnvReference,
    MatrixReference,
    MetricReference,
    OutputReference,
    ParamReference,
    Reference,
    RunReference,
)
from pipelines.spec.tree import Scalar

_IDENTITY = ("uses", "with", "inputs", "rev", "identity", "matrix", "for_each")
"""Sections of a stage that its result depends on: they mean the same for everybody who runs the file."""


class Area(Enum):
    """Kinds of places, by who reads what stands there."""

    INPUT = auto()
    CONDITION = auto()
    RUN_TEXT = auto()
    """Text with values that are known when a run goes on."""
    OTHER = auto()


@dataclass(frozen=True)
class Kept:
    """A reference that stays as it is until somebody reads the text."""

    reference: Reference


@dataclass(frozen=True)
class Refused:
    """A reference that cannot stand here; one without a message stands for a fault that is reported elsewhere."""

    message: str | None


def area_of(path: KeyPath) -> Area:
    """The kind of place that a path leads to."""
    if path[0] == "stages" and len(path) > 2:
        if path[2] == "inputs":
            return Area.INPUT
        if path[2] in ("if", "require"):
            return Area.CONDITION
    if path == ("notify", "to") or path[-3:-1] == ("resources", "env"):
        return Area.RUN_TEXT
    return Area.OTHER


@dataclass(frozen=True)
class Scope:
    """What references stand for in one part of the file.

    Attributes:
        params: the parameters.
        instance: the stage, with the values of its cell; none outside stages.
        keep_cells: leave references to cells as they are, for a stage that stands for all its instances.
    """

    params: Params
    instance: Instance | None = None
    keep_cells: bool = False

    def resolve(self, reference: Reference, path: KeyPath) -> Scalar | Kept | Refused:
        """What a reference stands for at a path; the place of a value is where that was written."""
        match reference:
            case ParamReference(name=name):
                return self._param(name)
            case EnvReference(name=name):
                return _env(name, path)
            case RunReference():
                if area_of(path) is Area.RUN_TEXT:
                    return Kept(reference)
                where = "`resources.env` and in `notify.to`"
                return Refused(f"`${{{reference}}}` has a value only while a run goes on: it can stand in {where}")
            case OutputReference() | MetricReference() | AliasReference():
                return _connection(reference, path)
            case MatrixReference() | EachMatrixReference() | EachReference():
                return self._cell(reference, path)

    def _param(self, name: str) -> Scalar | Refused:
        if name in self.params.values:
            return Scalar(self.params.values[name], self.params.places[name])
        if name in self.params.broken:
            return Refused(None)
        return Refused(f"unknown parameter `{name}`{did_you_mean(name, self.params.values)}")

    def _cell(
        self, reference: MatrixReference | EachMatrixReference | EachReference, path: KeyPath
    ) -> Scalar | Kept | Refused:
        if self.instance is None:
            return Refused(f"`${{{reference}}}` can only stand in a stage")
        each = self.instance.each
        if isinstance(reference, MatrixReference):
            return self._value(reference, self.instance.group, self.instance.matrix)
        if each is None:
            return Refused(f"`${{{reference}}}`: `{self.instance.group}` has no `for_each`")
        if isinstance(reference, EachMatrixReference):
            return self._value(reference, each.group, each.cell)
        found = _connection(reference.of(each.id), path)
        return Kept(reference) if self.keep_cells and isinstance(found, Kept) else found

    def _value(
        self, reference: MatrixReference | EachMatrixReference, group: str, cell: Mapping[str, Scalar]
    ) -> Scalar | Kept | Refused:
        if reference.axis in cell:
            return Kept(reference) if self.keep_cells else cell[reference.axis]
        each = self.instance.each if self.instance else None
        if isinstance(reference, MatrixReference) and each and reference.axis in each.cell:
            return Refused(f"`${{{reference}}}` is of `{each.group}`: write `${{each.{reference}}}`")
        what = f"has no axis `{reference.axis}`{did_you_mean(reference.axis, cell)}" if cell else "has no `matrix`"
        return Refused(f"`${{{reference}}}`: `{group}` {what}")


def _env(name: str, path: KeyPath) -> Scalar | Refused:
    if path[0] == "stages" and len(path) > 2 and path[2] in _IDENTITY:
        why = "which is the same for everybody who runs the file: use a parameter"
        return Refused(f"`${{env.{name}}}` cannot stand in `{path[2]}`, {why}")
    if name not in os.environ:
        return Refused(f"the environment has no variable `{name}`")
    return Scalar(os.environ[name], Place(f"environment variable {name}"))


def _connection(reference: OutputReference | MetricReference | AliasReference, path: KeyPath) -> Kept | Refused:
    """What connects stages is left to be read with the stages at hand."""
    match reference, area_of(path):
        case MetricReference(), Area.CONDITION:
            return Kept(reference)
        case ((OutputReference() | AliasReference()), (Area.INPUT | Area.CONDITION)):
            return Kept(reference)
        case MetricReference(), _:
            return Refused(f"`${{{reference}}}` can only stand in `if` and `require`")
        case _:
            return Refused(f"`${{{reference}}}` can only be an input of a stage or gate")
