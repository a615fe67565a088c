"""Fans stages out: an instance for each cell of a `matrix`, or for each instance of the stage in `for_each`."""

import hashlib
import itertools
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pipelines.spec.diagnostics import KeyPath, Place, Problems, did_you_mean
from pipelines.spec.scalars import plain_scalar
from pipelines.spec.tree import Items, Scalar, ScalarValue, Table, Tree

MAX_INSTANCES = 1000
"""Most instances of a pipeline."""

_SHOWN_AS_IS = re.compile(r"[A-Za-z0-9._+-]{1,32}")


@dataclass(frozen=True)
class Instance:
    """A stage as it runs.

    Attributes:
        id: its group, with the values of its cell in brackets if it is fanned out.
        group: its name in the file.
        matrix: its own values by axis.
        each: the instance of another stage that it goes with.
    """

    id: str
    group: str
    matrix: Mapping[str, Scalar] = field(default_factory=dict)
    each: "Instance | None" = None

    @property
    def cell(self) -> Mapping[str, Scalar]:
        """All values that tell it from the others of its group: those of the instance that it goes with first."""
        return {**(self.each.cell if self.each else {}), **self.matrix}


def expand(stages: Mapping[str, Table], problems: Problems) -> dict[str, tuple[Instance, ...]]:
    """The instances of every stage: one of its own name where it is not fanned out, none where that is faulty.

    Args:
        stages: tables by name, `matrix` and `for_each` without references.
        problems: gets what is wrong.
    """
    expansion = _Expansion(stages, problems)
    return {group: expansion.instances(group) for group in stages}


def is_fanned_out(table: Table) -> bool:
    """Whether a stage has instances."""
    return "matrix" in table.entries or "for_each" in table.entries


def selects(selector: str, instance: Instance) -> bool:
    """Whether `beta=0.1,lr=1e-6`, or `*`, names an instance; axes may be left out, and stand in any order."""
    if selector == "*":
        return True
    for part in selector.split(","):
        axis, _, text = (word.strip() for word in part.partition("="))
        found = instance.cell.get(axis)
        if found is None or label(found.value) != (text if isinstance(found.value, str) else label(plain_scalar(text))):
            return False
    return True


def label(value: ScalarValue) -> str:
    """A value as an id shows it: long or unusual text by what can be read of it and a digest."""
    if not isinstance(value, str):
        return json.dumps(value)
    if _SHOWN_AS_IS.fullmatch(value):
        return value
    readable = re.sub(r"[^A-Za-z0-9._+-]+", "-", value)[-24:].strip("-")
    return f"{readable}-{hashlib.sha256(value.encode()).hexdigest()[:6]}"


class _Expansion:
    def __init__(self, stages: Mapping[str, Table], problems: Problems) -> None:
        self._stages = stages
        self._problems = problems
        self._done: dict[str, tuple[Instance, ...]] = {}
        self._open: list[str] = []
        self._total = 0

    def instances(self, group: str) -> tuple[Instance, ...]:
        if group not in self._done:
            self._open.append(group)
            self._done[group] = self._expand(group, self._stages[group])
            self._open.pop()
        return self._done[group]

    def _expand(self, group: str, table: Table) -> tuple[Instance, ...]:
        if not is_fanned_out(table):
            return (Instance(group, group),)
        axes, each = self._axes(group, table), self._each(group, table)
        if axes is None or each is None or not self._fits(group, table, axes, each):
            return ()
        cells = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
        return tuple(_named(Instance(group, group, cell, instance)) for instance in each for cell in cells)

    def _fits(
        self, group: str, table: Table, axes: Mapping[str, tuple[Scalar, ...]], each: tuple[Instance | None, ...]
    ) -> bool:
        key = "matrix" if axes else "for_each"
        path, place = ("stages", group, key), table.entries[key].key_place
        first = each[0]
        twice = [axis for axis in axes if first and axis in first.cell]
        self._total += len(each) * math.prod(len(values) for values in axes.values())
        if first and twice:
            self._problems.add(place, path, f"`{first.group}` has an axis `{twice[0]}` already")
        elif self._total > MAX_INSTANCES:
            self._problems.add(place, path, f"more than {MAX_INSTANCES} instances in this pipeline")
        else:
            return True
        return False

    def _axes(self, group: str, table: Table) -> dict[str, tuple[Scalar, ...]] | None:
        """The values of each axis, none when they are faulty."""
        entry = table.entries.get("matrix")
        if entry is None:
            return {}
        path = ("stages", group, "matrix")
        if not isinstance(entry.value, Table) or not entry.value.entries:
            self._problems.add(entry.key_place, path, "expected lists of values by name, such as {beta: [0.1, 0.3]}")
            return None
        axes = {
            axis: self._values((*path, axis), found.key_place, found.value)
            for axis, found in entry.value.entries.items()
        }
        return axes if all(axes.values()) else None

    def _values(self, path: KeyPath, place: Place, found: Tree) -> tuple[Scalar, ...]:
        """The values of an axis, none of them when one is faulty."""
        if not isinstance(found, Items) or not found.values:
            self._problems.add(place, path, "expected a list of at least one value")
            return ()
        values: dict[tuple[type, ScalarValue], Scalar] = {}
        for index, scalar in enumerate(found.values):
            kind = _kind(scalar)
            if kind is None or not isinstance(scalar, Scalar):
                self._problems.add(scalar.place, (*path, index), "expected a number, text, true or false")
            elif values and kind not in {known for known, _ in values}:
                message = f"the values of an axis are of one kind, but {json.dumps(scalar.value)} is not"
                self._problems.add(scalar.place, (*path, index), message)
            elif (kind, scalar.value) in values:
                self._problems.add(scalar.place, (*path, index), f"{json.dumps(scalar.value)} stands here twice")
            else:
                values[kind, scalar.value] = scalar
        return tuple(values.values()) if len(values) == len(found.values) else ()

    def _each(self, group: str, table: Table) -> tuple[Instance | None, ...] | None:
        """The instances that those of a group go with; `(None,)` without `for_each`, none where that is faulty."""
        entry = table.entries.get("for_each")
        if entry is None:
            return (None,)
        path, place = ("stages", group, "for_each"), entry.key_place
        name = entry.value.value if isinstance(entry.value, Scalar) else None
        if not isinstance(name, str):
            self._problems.add(place, path, "expected the name of a fanned-out stage")
        elif name not in self._stages:
            fanned = [known for known, other in self._stages.items() if is_fanned_out(other)]
            self._problems.add(place, path, f"unknown stage `{name}`{did_you_mean(name, fanned)}")
        elif name in self._open:
            chain = " → ".join([*self._open[self._open.index(name) :], name])
            self._problems.add(place, path, f"stages go with each other: {chain}")
        elif not is_fanned_out(self._stages[name]):
            message = f"`{name}` is a single stage: it has neither `matrix` nor `for_each`"
            self._problems.add(place, path, message)
        else:
            return self.instances(name) or None
        return None


def _kind(value: Tree) -> type | None:
    match value:
        case Scalar(value=bool()):
            return bool
        case Scalar(value=int() | float() as number) if math.isfinite(number):
            return float
        case Scalar(value=str()):
            return str
        case _:
            return None


def _named(instance: Instance) -> Instance:
    cell = ",".join(f"{axis}={label(value.value)}" for axis, value in instance.cell.items())
    return Instance(f"{instance.group}[{cell}]", instance.group, instance.matrix, instance.each)
