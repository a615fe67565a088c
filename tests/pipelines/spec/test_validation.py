from typing import Annotated, Literal, Self

import pytest
from pydantic import Field, model_validator

from pipelines.spec.diagnostics import Place, Problems
from pipelines.spec.validation import validate
from pipelines.spec.yaml_text import read_yaml
from stages.contract import Strict


class Mesh(Strict):
    name: str
    size: int


class Dpo(Strict):
    kind: Literal["dpo"]
    beta: Annotated[float, Field(gt=0)]


class Ipo(Strict):
    kind: Literal["ipo"]
    tau: float


class Batch(Strict):
    batch_size: int
    micro_batch: int = 1

    @model_validator(mode="after")
    def divisible(self) -> Self:
        if self.batch_size % self.micro_batch:
            raise ValueError(f"micro_batch {self.micro_batch} does not divide batch_size {self.batch_size}")
        return self


class Settings(Strict):
    batch: Batch = Batch(batch_size=1)
    loss: Annotated[Dpo | Ipo, Field(discriminator="kind")] = Dpo(kind="dpo", beta=0.1)
    meshes: tuple[Mesh, ...] = ()
    mesh: Mesh | None = None
    rates: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)


def check(text: str) -> list[str]:
    problems = Problems()
    tree = read_yaml(text, lambda line, column: Place("f", line + 1, column + 1), problems)
    assert tree is not None
    found = validate(Settings, tree, ("with",), problems)
    assert (found is None) == bool(problems.found)
    return [str(problem) for problem in problems.found]


def test_valid_settings_have_no_problems() -> None:
    assert check("loss: {kind: ipo, tau: 1}\nmeshes: [{name: a, size: 1}]\nrates: {x: 1}\n") == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("batch:\n  batch_size: 6\n  micro_batch: 4", "f:1:1: with.batch: micro_batch 4 does not divide batch_size 6"),
        ("loss: {kind: dpo, beta: 0}", "f:1:19: with.loss.beta: should be greater than 0, not 0"),
        ("loss: {kind: dpo, beta: 1, bta: 2}", "f:1:28: with.loss.bta: unknown key (did you mean `beta`?)"),
        ("loss: {kind: dpo}", "f:1:1: with.loss.beta: required, but missing"),
        ("meshes:\n  - {name: a, size: x}", 'f:2:15: with.meshes.0.size: should be a valid integer, not "x"'),
        ("meshes:\n  - {name: a, size: 1}\n  - 3", "f:3:5: with.meshes.1: expected a mapping of keys to values, not 3"),
        ("mesh: {name: a, szie: 1, size: 1}", "f:1:17: with.mesh.szie: unknown key (did you mean `size`?)"),
        ("rates: {x: 1, y: -1}", "f:1:15: with.rates.y: should be greater than or equal to 0, not -1"),
        ("size: 3", "f:1:1: with.size: unknown key (did you mean `meshes.size`?)"),
    ],
)
def test_a_fault_is_told_at_its_key_in_the_words_of_the_file(text: str, problem: str) -> None:
    assert check(text) == [problem]


def test_an_unknown_variant_is_told_with_the_known_ones() -> None:
    (problem,) = check("loss: {kind: dop}")
    assert problem.startswith("f:1:1: with.loss: ")
    assert "'dpo', 'ipo'" in problem
