"""What is wrong with a pipeline file is told in one line with its place."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.spec.diagnostics import SpecError
from pipelines.spec.load import load_pipeline

Errors = Callable[..., list[str]]


def test_several_faults_are_reported_at_once_in_the_order_of_the_file(errors: Errors) -> None:
    found = errors(
        replace={
            "num_train: 8": "num_train: -1",
            "alpha: 4": "alpha: yes",
            "learning_rate: 1e-3": "learning_rate: .inf",
            "      batch_size: 8\n": "",
            '["accuracy >= 0.5"': '["accuracy >> 0.5"',
        }
    )
    assert [line.split(": ", 1)[1] for line in found] == [
        "stages.data.with.num_train: should be greater than or equal to 1, not -1",
        "stages.sft.with.batch_size: required, but missing",
        'stages.sft.with.model.lora.alpha: should be a valid number, not "yes"',
        "stages.sft.with.optimizer.learning_rate: should be a finite number, not Infinity",
        "stages.gate.require.0: column 11: expected a value or a metric, not `>` in `accuracy >> 0.5`",
    ]


CASES = {
    "an unknown kind of stage": (
        {"uses: sft": "uses: stf"},
        "11:5: stages.sft.uses: unknown kind of stage `stf` (did you mean `sft`?)",
    ),
    "a stage without a kind": (
        {"    uses: sft\n": ""},
        "10:3: stages.sft: needs `uses` (a kind of stage), `gate` or `action`",
    ),
    "a misspelt `uses`": ({"uses: sft": "use: sft"}, "11:5: stages.sft.use: unknown key (did you mean `uses`?)"),
    "a stage and gate in one": (
        {"uses: sft": "uses: sft\n    gate: eval"},
        (
            "12:5: stages.sft.gate: a stage has `uses`, a gate has `gate`, an action has `action`: "
            "not both `uses` and `gate`"
        ),
    ),
    "a feature that does not exist": (
        {"uses: sft": "uses: sft\n    priority: 3"},
        "12:5: stages.sft.priority: unknown key",
    ),
    "an unknown key at the top": ({"name: small": "name: small\ntriggers: {}"}, "3:1: triggers: unknown key"),
    "an unknown version": ({"version: 1": "version: 2"}, "1:1: version: should be 1, not 2"),
    "no version": ({"version: 1\n": ""}, "1:1: version: required, but missing"),
    "a kind that runs in one process": (
        {"uses: prepare": "uses: prepare\n    resources: {num_processes: 2}"},
        (
            "9:17: stages.data.resources.num_processes: `prepare` runs in one process, "
            "write `num_processes: 1` in this stage"
        ),
    ),
    "several processes on a machine's only set of devices": (
        {"uses: sft": "uses: sft\n    resources: {num_processes: 2, accelerator: gpu}"},
        (
            "12:17: stages.sft.resources.num_processes: one process drives all the gpu devices of a machine, "
            "several need `cpu`"
        ),
    ),
    "a bad name": (
        {"name: small": "name: Small Pipe"},
        '2:1: name: expected small letters, digits, `_` and `-`, first a letter or digit, not "Small Pipe"',
    ),
    "a bad stage id": (
        {"  gate:\n": "  9:\n    gate: eval\n  gate:\n"},
        "27:3: stages: a key must be text: quote it as '9'",
    ),
    "a list for a mapping": (
        {'with: {source: rows.jsonl, num_train: 8, num_held_out: 4, seed: "${params.seed}"}': "with: [1]"},
        "9:5: stages.data.with: expected a mapping of keys to values",
    ),
    "text for a list": (
        {"uses: sft": "uses: sft\n    needs: data"},
        '12:5: stages.sft.needs: expected a list, not "data"',
    ),
    "an unknown output": (
        {"data.outputs.train": "data.outputs.trian"},
        "12:45: stages.sft.inputs.dataset: `data` has no output `trian` (did you mean `train`?)",
    ),
    "an output of a gate": (
        {"sft.outputs.checkpoint": "gate.outputs.report"},
        "25:14: stages.eval_sft.inputs.model: `gate` is a gate and has no outputs",
    ),
    "an unknown input": (
        {'dataset: "${stages.data.outputs.train}"': 'datset: "${stages.data.outputs.train}"'},
        "12:45: stages.sft.inputs.datset: unknown input `datset` (did you mean `dataset`?)",
    ),
    "an unknown need": (
        {"uses: sft": "uses: sft\n    needs: [data, dta]"},
        "12:19: stages.sft.needs.1: unknown stage `dta` (did you mean `data`?)",
    ),
    "a report that is a model": (
        {"eval_sft.outputs.report": "sft.outputs.checkpoint"},
        "29:14: stages.gate.inputs.report: takes a report, but `stages.sft.outputs.checkpoint` is a model",
    ),
    "a dataset that is a path": (
        {"${stages.data.outputs.train}": "rows.jsonl"},
        (
            "12:45: stages.sft.inputs.dataset: takes a dataset from a stage, such as `${stages.ID.outputs.NAME}`, "
            "not `rows.jsonl`"
        ),
    ),
    "a report in require that is no report": (
        {"'${stages.eval_base.outputs.report}'": "'${stages.data.outputs.train}'"},
        "30:34: stages.gate.require.1: takes a report, but `stages.data.outputs.train` is a dataset",
    ),
    "an output within text": (
        {"${stages.data.outputs.train}": "x-${stages.data.outputs.train}"},
        "12:45: stages.sft.inputs.dataset: an output of a stage has to be the whole value",
    ),
    "an output in the settings": (
        {"num_steps: 4": 'num_steps: "${stages.data.outputs.train}"'},
        "16:7: stages.sft.with.num_steps: `${stages.data.outputs.train}` can only be an input of a stage or gate",
    ),
    "an unknown param": (
        {"source: rows.jsonl": 'source: "${params.sead}"'},
        "9:12: stages.data.with.source: unknown parameter `sead` (did you mean `seed`?)",
    ),
    "a param without a value": (
        {"{type: int, default: 7}": "{type: int}"},
        "4:3: params.seed: no default: give a value with --set params.seed=VALUE",
    ),
    "a param of an unknown type": (
        {"type: int": "type: itn"},
        (
            "4:10: params.seed.type: should be 'int', 'float', 'bool', 'str' or 'model_source', not \"itn\" "
            "(did you mean `int`?)"
        ),
    ),
    "a param that refers to another": (
        {"default: base": 'default: "${params.seed}"'},
        "5:36: params.base_model.default: a parameter cannot refer to something else",
    ),
    "a setting that stands one level too high": (
        {"num_steps: 4": "num_steps: 4\n      weight_decay: 0.1"},
        "17:7: stages.sft.with.weight_decay: unknown key (did you mean `optimizer.weight_decay`?)",
    ),
    "a number beyond all bounds": (
        {"num_steps: 4": "num_steps: " + "9" * 5000},
        "16:7: stages.sft.with.num_steps: should be a valid integer, not Infinity",
    ),
    "a param beyond all bounds": (
        {"{type: int, default: 7}": "{type: float, default: " + "9" * 5000 + "}"},
        "4:23: params.seed.default: expected a finite number, not Infinity",
    ),
    "an unknown choice": (
        {"learning_rate: 1e-3": "learning_rate: 1e-3, decay: cosin"},
        (
            "15:40: stages.sft.with.optimizer.decay: should be 'constant', 'linear' or 'cosine', not \"cosin\" "
            "(did you mean `cosine`?)"
        ),
    ),
    "a bad duration": (
        {"stages:\n": "defaults: {timeout: {total: 5 minutes}}\nstages:\n"},
        '6:22: defaults.timeout.total: expected a duration such as 90s, 20m or 12h, not "5 minutes"',
    ),
    "a retry for a cause that is never retried": (
        {"stages:\n": "defaults: {retry: {on: [infra, bug]}}\nstages:\n"},
        "6:32: defaults.retry.on.1: should be 'infra', 'storage', 'oom', 'stalled' or 'timeout', not \"bug\"",
    ),
    "a store that no stage's process would see": (
        {"name: small": "name: small\nstore: memory://x"},
        '3:1: store: expected a path, file:// or gs://, not "memory://x"',
    ),
    "a source of an unknown scheme": (
        {"source: rows.jsonl": "source: packge://a/b"},
        "9:12: stages.data.with.source: source 'packge://a/b': unknown scheme 'packge'",
    ),
    "a stage that is no mapping": (
        {"  gate:\n": "  x: 3\n  gate:\n"},
        "27:3: stages.x: expected a mapping of keys to values",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_fault_gives_one_line_with_its_place(case: str, errors: Errors) -> None:
    replace, message = CASES[case]
    found = errors(replace=replace)
    assert len(found) == 1, found
    assert found[0].startswith(message), found[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "1:1: the file is empty; a pipeline starts with `version: 1`"),
        (b"- 1\n", "1:1: not a pipeline: expected a mapping that starts with `version: 1`"),
        (b"just text", "1:1: not a pipeline"),
        (b"version: 1\nname: \xff\xfe", "2:7: not text: the byte 0xff is not UTF-8"),
        (b"\x7fELF\x02\x01\x01\x00", "1:1: not text: the character U+007F"),
        (b" " * (600 * 1024), "1:1: larger than 512 KiB, which no pipeline is"),
    ],
)
def test_a_file_that_is_no_pipeline_gives_one_line(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_bytes(content)
    with pytest.raises(SpecError) as raised:
        load_pipeline(path)
    assert str(raised.value).removeprefix(f"{path}:").startswith(message)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("name", "message"), [("none.yaml", "no such file or directory"), (".", "is a directory")])
def test_a_file_that_cannot_be_read_gives_one_line(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as raised:
        load_pipeline(tmp_path / name)
    assert str(raised.value) == f"{tmp_path / name}:1:1: cannot be read: {message}"


def test_a_file_starting_with_a_byte_order_mark_is_read(pipeline_file: Path) -> None:
    pipeline_file.write_bytes(b"\xef\xbb\xbf" + pipeline_file.read_bytes())
    assert load_pipeline(pipeline_file).name == "small"


TOKENS = [
    *("{", "}", "[]", ": ", "~", "1e999", "- x", "${", "${params.seed}", "'", "*a", "&a", "!!x ", "\t", "\n"),
    *("$${", "${matrix.learning_rate}", "${each.outputs.report}", "${stages.sft[*].outputs.checkpoint}", "[*]"),
    *("${stages.sft.outputs.report.x}", "${aliases.x}", "${env.HOME}", "${run.id}", "secret://x"),
    *(
        "    matrix: {a: [1, 2]}\n",
        "    for_each: sft\n",
        "    gate: human\n",
        "    action: set_alias\n",
        "    if: a > 0\n",
    ),
]
SWEEP = Path(__file__).parents[3] / "pipelines" / "sweep.yaml"


@pytest.mark.parametrize("source", [None, SWEEP], ids=["small", "sweep"])
def test_a_damaged_file_never_raises_anything_but_a_spec_error(source: Path | None, pipeline_file: Path) -> None:
    lines = (source or pipeline_file).read_text().splitlines(keepends=True)
    generator = random.Random(3)
    told: list[str] = []
    for _ in range(100):
        damaged = lines.copy()
        for _ in range(generator.randint(1, 3)):
            at = generator.randrange(len(damaged))
            column = generator.randrange(len(damaged[at]) + 1)
            kept = damaged[at]
            damaged[at] = generator.choice(
                ["", kept + kept, kept[:column] + generator.choice(TOKENS) + kept[column:], kept[column:]]
            )
        pipeline_file.write_text("".join(damaged))
        try:
            load_pipeline(pipeline_file)
        except SpecError as error:
            told.extend(str(error).splitlines())
    assert len(told) > 60
    assert all(line.startswith(str(pipeline_file)) for line in told)
