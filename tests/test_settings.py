"""Every setting of every stage: the frozen list, what is said about each, and proof that something reads it."""

import ast
import dataclasses
import inspect
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import get_args

import pytest
from pydantic.fields import FieldInfo

from pipelines.spec.nodes import Resources, Retry, Timeout
from stages.catalog import STAGES
from stages.contract import Strict

ROOT = Path(__file__).parents[1]

# A line is added here together with the code that reads the setting.
SETTINGS = ROOT / "tests" / "settings.txt"


def models_in(annotation: object) -> Iterator[type[Strict]]:
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)


def sections(model: type[Strict]) -> Iterator[type[Strict]]:
    yield model
    for field in model.model_fields.values():
        for section in models_in(field.annotation):
            yield from sections(section)


SECTIONS: Mapping[str, type[Strict]] = MappingProxyType(
    {section.__name__: section for stage in STAGES.values() for section in sections(stage.config)}
)
FIELDS = [(section, name, field) for section in SECTIONS.values() for name, field in section.model_fields.items()]
ALL_FIELDS = pytest.mark.parametrize(
    ("section", "name", "field"), FIELDS, ids=[f"{section.__name__}.{name}" for section, name, _ in FIELDS]
)


def role(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    return f" {extra['x-role']}" if isinstance(extra, dict) and "x-role" in extra else ""


def test_the_list_of_settings_is_the_frozen_one():
    listed = sorted(f"{section.__name__}.{name}{role(field)}" for section, name, field in FIELDS)
    assert listed == SETTINGS.read_text().splitlines()


@pytest.mark.parametrize("section", SECTIONS.values(), ids=SECTIONS)
def test_a_section_is_frozen_and_takes_no_unknown_or_converted_value(section: type[Strict]):
    rules = section.model_config
    assert (rules.get("frozen"), rules.get("strict"), rules.get("extra")) == (True, True, "forbid")


@ALL_FIELDS
def test_a_setting_says_what_it_means(section: type[Strict], name: str, field: FieldInfo):
    assert field.description
    assert field.description.endswith(".")


@ALL_FIELDS
def test_a_number_has_a_bound(section: type[Strict], name: str, field: FieldInfo):
    if {int, float} & {field.annotation, *get_args(field.annotation)}:
        assert field.metadata


# --- readers ------------------------------------------------------------------------------------

Fields = Mapping[str, frozenset[str]]
"""Names in the annotation of each field of a class."""


def names_in(annotation: ast.expr | None) -> frozenset[str]:
    return (
        frozenset(node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)) if annotation else frozenset()
    )


def fields_of(node: ast.ClassDef) -> Fields:
    fields: dict[str, frozenset[str]] = {}
    for part in node.body:
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            fields[part.target.id] = names_in(part.annotation)
        elif isinstance(part, ast.FunctionDef):
            fields[part.name] = names_in(part.returns)
    return fields


class House:
    """All classes with their own and inherited fields, and names that stand for others, as of a choice of classes."""

    def __init__(self, modules: Sequence[ast.Module]) -> None:
        nodes = [node for module in modules for node in ast.walk(module) if isinstance(node, ast.ClassDef)]
        self._own = {node.name: fields_of(node) for node in nodes}
        self._bases = {node.name: [name for base in node.bases for name in names_in(base)] for node in nodes}
        self._aliases = {
            target.id: names_in(node.value)
            for module in modules
            for node in module.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }

    def fields(self, name: str) -> Fields:
        inherited = [self.fields(base) for base in self._bases.get(name, []) if base != name]
        return {field: types for fields in [*inherited, self._own.get(name, {})] for field, types in fields.items()}

    def meant(self, names: frozenset[str]) -> frozenset[str]:
        more = names.union(*(self._aliases.get(name, frozenset()) for name in names))
        return names if more == names else self.meant(more)


class Reads(ast.NodeVisitor):
    """Collects `(class, field)` for each attribute that is read from a value whose class an annotation tells.

    Such a value is a parameter, a field or property of another one, or a variable assigned from it.
    """

    def __init__(self, house: House) -> None:
        self.found: set[tuple[str, str]] = set()
        self.house = house
        self.known: dict[str, frozenset[str]] = {}

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        outer = self.known
        self.known = {**outer, "self": frozenset({node.name})}
        self.generic_visit(node)
        self.known = outer

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outer = dict(self.known)
        for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
            if argument.arg != "self":
                self.known[argument.arg] = self.house.meant(names_in(argument.annotation))
        self.generic_visit(node)
        fields = {name: types for name, types in self.known.items() if name.startswith("self.")}
        self.known = {**outer, **fields}

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            else:
                pairs = [(target, node.value)]
            self.known |= {ast.unparse(name): types for name, value in pairs if (types := self._types(value))}

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Load):
            self.found |= {(name, node.attr) for name in self._types(node.value)}
        self.generic_visit(node)

    def visit_MatchClass(self, node: ast.MatchClass) -> None:
        if isinstance(node.cls, ast.Name):
            self.found |= {(node.cls.id, field) for field in node.kwd_attrs}
        self.generic_visit(node)

    def _types(self, node: ast.expr) -> frozenset[str]:
        known = self.known.get(ast.unparse(node), frozenset())
        if known or not isinstance(node, ast.Attribute):
            return known
        owners = [self.house.fields(name) for name in self._types(node.value)]
        return self.house.meant(frozenset().union(*(fields.get(node.attr, frozenset()) for fields in owners)))


def reads(modules: Sequence[ast.Module]) -> set[tuple[str, str]]:
    house, found = House(modules), set[tuple[str, str]]()
    for module in modules:
        visitor = Reads(house)
        visitor.visit(module)
        found |= visitor.found
    return found


def parsed(*folders: str) -> list[ast.Module]:
    return [ast.parse(path.read_text()) for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


@pytest.fixture(scope="module")
def read() -> set[tuple[str, str]]:
    return reads(parsed("flows", "tasks", "pipelines", "stages"))


@ALL_FIELDS
def test_a_setting_is_read(section: type[Strict], name: str, field: FieldInfo, read: set[tuple[str, str]]):
    # What a base class has in common for several is read by those who know only that.
    assert any((known.__name__, name) in read for known in section.__mro__)


@pytest.mark.parametrize(
    ("section", "name"),
    [
        *((part.__name__, field.name) for part in (Retry, Timeout, Resources) for field in dataclasses.fields(part)),
        ("StageNode", "rev"),
        ("GateNode", "require"),
        ("GateNode", "on_fail"),
    ],
)
def test_what_a_pipeline_says_about_a_stage_or_gate_is_read(section: str, name: str, read: set[tuple[str, str]]):
    assert (section, name) in read


def test_the_search_for_readers_follows_parameters_variables_and_fields():
    source = """
        class Inner:
            rank: int
            alpha: float
        class Scaled(Inner):
            scale: float
            tilt: float
        Choice = Inner | Scaled
        class Outer:
            inner: Inner
            choice: Choice
            seed: int
        class Loop:
            outer: Outer | None
            def __init__(self, inner: Inner):
                self._inner = inner
            def all(self, other):
                return self.outer.seed, self._inner.alpha, other.rate
        def run(context, config: Outer):
            inner, steps = config.inner, 3
            return inner.rank
        def write(config: Outer):
            config.never = 1
            config.choice.rate
        def by_kind(choice: Choice, config: Scaled):
            match choice:
                case Scaled(scale=scale):
                    return scale, config.inner
    """
    found = reads([ast.parse(inspect.cleandoc(source))])
    assert found & {(name, field) for name in ("Inner", "Outer") for field in ("rank", "alpha", "seed", "inner")} == {
        ("Outer", "inner"),
        ("Inner", "rank"),
        ("Outer", "seed"),
        ("Inner", "alpha"),
    }
    assert {("Outer", "choice"), ("Scaled", "rate"), ("Scaled", "scale"), ("Scaled", "inner")} <= found
    assert {("Outer", "never"), ("Outer", "rate"), ("Scaled", "tilt"), ("Scaled", "rank")} & found == set()
