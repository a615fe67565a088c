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
    "divides_what_makes_the_result": "9:22: stages.sft.retry.on_oom.batch_size: no whole number that changes how a "
    "stage runs but not its result; there is `save_every_steps`, `train_micro_batch`",
    "duplicate_key": "15:7: stages.sft.with.num_steps: duplicate key (first in line 13)",
    "empty_matrix": "9:14: stages.sft.matrix.rate: expected a list of at least one value",
    "environment_in_an_input": "9:14: stages.sft.inputs.model: `${env.HOME}` cannot stand in `inputs`, which is the "
    "same for everybody who runs the file: use a parameter",
    "extends_itself": "3:1: extends: files extend each other: extends_itself.yaml → extends_itself.yaml",
    "fanned_out_taken_as_one": "19:14: stages.eval_sft.inputs.model: `sft` is fanned out: `sft[rate=0.001]` is one of "
    "it, `sft[*]` the list, and `for_each: sft` goes with each",
    "for_each_over_one": "18:5: stages.eval_sft.for_each: `sft` is a single stage: it has neither `matrix` nor "
    "`for_each`",
    "human_gate_on_nothing": "16:3: stages.approve.needs: required, but missing",
    "metric_of_no_report": "9:5: stages.sft.if: column 1: `accuracy` of which report? Here a metric is "
    "`${stages.ID.outputs.report.accuracy}` in `accuracy > 0.5`",
    "missing_input": "9:5: stages.sft.inputs.dataset: required, but missing: takes a dataset",
    "never_fires": '3:12: schedule.cron: never fires: no such month has a day 31, not "0 2 31 2 *"',
    "not_yaml": "12:7: not YAML: expected ',' or '}', but got '<scalar>' "
    "(while parsing a flow mapping that starts in line 11)",
    "one_bad_cell": "13:19: stages.sft[rate=-1].with.optimizer.learning_rate: should be greater than 0, not -1",
    "secret_in_the_settings": "6:12: stages.data.with.source: `secret://data` can stand in `resources.env` and in "
    "`notify.to` only: secrets enter no identity",
    "typo_at_depth_3": "12:40: stages.sft.with.optimizer.weight_decy: unknown key (did you mean `weight_decay`?)",
    "unknown_action": "17:5: stages.promote.action: unknown kind of action `set_aliass` (did you mean `set_alias`?)",
    "unknown_stage": "9:27: stages.sft.inputs.dataset: unknown stage `dta` (did you mean `data`?)",
    "wrong_artifact_type": "20:7: stages.eval_sft.inputs.dataset: takes a dataset, but `stages.sft.outputs.report` "
    "is a report",
    "wrong_type": '13:7: stages.sft.with.num_steps: should be a valid integer, not "two"',
}

SEEN_BY_EDITORS = {
    "empty_matrix",
    "human_gate_on_nothing",
    "missing_input",
    "typo_at_depth_3",
    "unknown_action",
    "wrong_type",
}
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
