import json
from pathlib import Path

import jsonschema
import pytest

from pipelines.spec.diagnostics import Place, Problems, SpecError
from pipelines.spec.load import load_pipeline
from pipelines.spec.schema import SCHEMA_FILE
from pipelines.spec.tree import to_plain
from pipelines.spec.yaml_text import read_yaml

BROKEN = Path(__file__).parent / "broken"

LINES = {
    "bad_profile": "23:7: stages.stf: unknown stage `stf` (did you mean `sft`?)",
    "bad_reference": "9:14: stages.sft.inputs.model: bad reference `${param.base_model}`: "
    "expected `${params.NAME}` (did you mean `params`?)",
    "cycle": "16:13: stages.sft.needs.0: stages wait for each other: sft → eval_sft → sft",
    "duplicate_key": "15:7: stages.sft.with.num_steps: duplicate key (first in line 13)",
    "missing_input": "9:5: stages.sft.inputs.dataset: required, but missing: takes a dataset",
    "not_yaml": "12:7: not YAML: expected ',' or '}', but got '<scalar>' "
    "(while parsing a flow mapping that starts in line 11)",
    "typo_at_depth_3": "12:40: stages.sft.with.optimizer.weight_decy: unknown key (did you mean `weight_decay`?)",
    "unknown_stage": "9:27: stages.sft.inputs.dataset: unknown stage `dta` (did you mean `data`?)",
    "wrong_artifact_type": "20:7: stages.eval_sft.inputs.dataset: takes a dataset, but `stages.sft.outputs.report` "
    "is a report",
    "wrong_type": '13:7: stages.sft.with.num_steps: should be a valid integer, not "two"',
}

SEEN_BY_EDITORS = {"missing_input", "typo_at_depth_3", "wrong_type"}
"""What a schema can find; the rest needs the other stages, or is no YAML."""


def test_every_broken_example_has_its_line() -> None:
    assert {path.stem for path in BROKEN.glob("*.yaml")} == set(LINES)


@pytest.mark.parametrize("name", LINES)
def test_a_broken_example_gives_one_clear_line(name: str) -> None:
    path = BROKEN / f"{name}.yaml"
    with pytest.raises(SpecError) as raised:
        load_pipeline(path)
    assert str(raised.value) == f"{path}:{LINES[name]}"


@pytest.mark.parametrize("name", LINES)
def test_the_schema_finds_the_faults_that_a_schema_can_find(name: str) -> None:
    tree = read_yaml((BROKEN / f"{name}.yaml").read_text(), lambda _line, _column: Place("f"), Problems())
    if tree is None:
        return
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text()))
    assert (not validator.is_valid(to_plain(tree))) == (name in SEEN_BY_EDITORS)
