"""Every setting of every stage: the frozen list, what is said about each, and proof that something reads it."""

import ast
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import get_args

import pytest
from pydantic.fields import FieldInfo

from stages.catalog import STAGES
from stages.contract import Strict

ROOT = Path(__file__).parents[1]

# A line is added here together with the code that reads the setting.
SETTINGS = """
EvaluationConfig.sampling
EvaluationConfig.accuracy
EvaluationConfig.seed
EvaluationConfig.rollout_micro_batch execution
GrpoConfig.model
GrpoConfig.optimizer
GrpoConfig.num_steps
GrpoConfig.prompts_per_step
GrpoConfig.mini_batch
GrpoConfig.group_size
GrpoConfig.sampling
GrpoConfig.reward
GrpoConfig.advantages
GrpoConfig.kl_coef
GrpoConfig.clip_low
GrpoConfig.clip_high
GrpoConfig.aggregation
GrpoConfig.seed
GrpoConfig.train_micro_batch execution
GrpoConfig.rollout_micro_batch execution
GrpoConfig.save_every_steps execution
LoraConfig.rank
LoraConfig.alpha
LoraConfig.targets
OptimizerConfig.learning_rate
OptimizerConfig.warmup_steps
OptimizerConfig.decay
OptimizerConfig.weight_decay
OptimizerConfig.beta1
OptimizerConfig.beta2
OptimizerConfig.epsilon
OptimizerConfig.max_grad_norm
PrepareConfig.source source
PrepareConfig.num_train
PrepareConfig.num_validation
PrepareConfig.num_held_out
PrepareConfig.system_prompt
PrepareConfig.seed
SamplingConfig.temperature
SamplingConfig.max_response_tokens
SftConfig.model
SftConfig.optimizer
SftConfig.num_steps
SftConfig.batch_size
SftConfig.max_tokens
SftConfig.seed
SftConfig.train_micro_batch execution
SftConfig.save_every_steps execution
TrainedModelConfig.lora
"""


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
    assert listed == sorted(SETTINGS.split("\n")[1:-1])


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


class Reads(ast.NodeVisitor):
    """Collects `(section, field)` for each attribute that is read from a value annotated with a section.

    A value is a parameter, a variable assigned from such a value, or a field of the enclosing class.
    """

    def __init__(self) -> None:
        self.found: set[tuple[str, str]] = set()
        self.types: dict[str, type[Strict]] = {}

    def visit_Module(self, node: ast.Module) -> None:
        fields = [inner for inner in ast.walk(node) if isinstance(inner, ast.AnnAssign)]
        self.types |= {
            f"self.{field.target.id}": section
            for field in fields
            if isinstance(field.target, ast.Name) and (section := self._named(field.annotation))
        }
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outer = dict(self.types)
        for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
            if section := self._named(argument.annotation):
                self.types[argument.arg] = section
        self.generic_visit(node)
        self.types = outer

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        if section := self._type(node.value):
            self.types |= {ast.unparse(target): section for target in node.targets}

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if section := self._type(node.value):
            self.found.add((section.__name__, node.attr))
        self.generic_visit(node)

    def _named(self, annotation: ast.expr | None) -> type[Strict] | None:
        names = [node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)] if annotation else []
        return next((SECTIONS[name] for name in names if name in SECTIONS), None)

    def _type(self, node: ast.expr) -> type[Strict] | None:
        known = self.types.get(ast.unparse(node))
        if known is None and isinstance(node, ast.Attribute) and (outer := self._type(node.value)):
            field = outer.model_fields.get(node.attr)
            return next(models_in(field.annotation), None) if field else None
        return known


def reads(source: str) -> set[tuple[str, str]]:
    visitor = Reads()
    visitor.visit(ast.parse(source))
    return visitor.found


READ = {
    read for path in (ROOT / "stages").rglob("*.py") if path.name != "config.py" for read in reads(path.read_text())
}


@ALL_FIELDS
def test_a_setting_is_read(section: type[Strict], name: str, field: FieldInfo):
    assert (section.__name__, name) in READ


def test_the_search_for_readers_follows_parameters_variables_and_fields():
    source = """
        class Loop:
            settings: OptimizerConfig
            def rate(self): return self.settings.beta1
        def run(context, config: SftConfig):
            lora = config.model.lora
            return lora.rank
        def other(config): return config.seed
    """
    assert reads(inspect.cleandoc(source)) == {
        ("OptimizerConfig", "beta1"),
        ("SftConfig", "model"),
        ("TrainedModelConfig", "lora"),
        ("LoraConfig", "rank"),
    }
