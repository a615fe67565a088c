"""The stage that prepares data, alone and in its own process over a store."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from prepare_trial import prepare_context, prepare_request

from stages.context import RunContext
from stages.contract import DatasetArtifact, SourceRef, StageResult
from stages.engine.data.records import Message, Row, read_dataset
from stages.errors import PreemptedError, TemperError, UserError
from stages.prepare.config import PrepareConfig
from stages.prepare.run import run
from stages.store.conditional import open_store
from stages.store.layout import StagePaths
from stages.store.segments import read_metrics

SPLITS = ("train", "validation", "held_out")
SMALL = "reasoning_gym://chain_sum?min_terms=2&max_terms=2&min_digits=1&max_digits=1"
QUESTION = "State the final answer to the following arithmetic problem: "


def make_config(num_train: int = 100, seed: int = 3, system_prompt: str | None = None) -> PrepareConfig:
    return PrepareConfig(
        source=SMALL, num_train=num_train, num_validation=30, num_held_out=50, system_prompt=system_prompt, seed=seed
    )


def prepare(folder: Path, config: PrepareConfig) -> dict[str, list[Row]]:
    context = prepare_context(folder, config)
    run(context, config)
    return {split: read_dataset(context.output_dir(split)) for split in SPLITS}


def questions(rows: list[Row]) -> set[str]:
    return {row.messages[-1].content for row in rows}


def test_splits_have_their_sizes_and_share_no_problem(tmp_path: Path) -> None:
    splits = prepare(tmp_path, make_config())
    assert [len(splits[split]) for split in SPLITS] == [100, 30, 50]
    assert len(set.union(*map(questions, splits.values()))) == 180


def test_a_row_is_a_question_and_its_right_answer(tmp_path: Path) -> None:
    splits = prepare(tmp_path, make_config(system_prompt="Answer with a number."))
    assert [row.id for row in splits["held_out"][:2]] == ["held_out-00000", "held_out-00001"]
    for row in splits["train"]:
        system, question = row.messages
        assert system == Message(role="system", content="Answer with a number.")
        first, sign, second = question.content.removeprefix(QUESTION).removesuffix(" =").split()
        assert row.answer == row.response == str(int(first) + int(sign + second))


def test_without_a_system_prompt_the_question_is_the_only_message(tmp_path: Path) -> None:
    assert {len(row.messages) for row in prepare(tmp_path, make_config())["train"]} == {1}


def test_another_seed_gives_other_splits(tmp_path: Path) -> None:
    first, other = (prepare(tmp_path / str(seed), make_config(seed=seed)) for seed in (3, 4))
    assert questions(first["held_out"]) != questions(other["held_out"])


def test_every_problem_of_the_task_can_be_asked_for_and_not_one_more(tmp_path: Path) -> None:
    splits = prepare(tmp_path / "all", make_config(num_train=120))
    assert len(splits["train"]) == 120
    with pytest.raises(UserError, match=r"has only 200 distinct problems, but .* is 201"):
        prepare(tmp_path / "more", make_config(num_train=121))


def test_it_stops_when_asked_to(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    config = make_config()
    context = prepare_context(tmp_path, config, stop)
    with pytest.raises(PreemptedError):
        run(context, config)
    assert not (tmp_path / "scratch" / "out").exists()


def run_process(folder: Path, config: PrepareConfig, hash_seed: str) -> StageResult:
    folder.mkdir()
    (folder / "request.json").write_text(prepare_request(folder, config).model_dump_json())
    process = subprocess.run(
        [sys.executable, "-m", "stages", str(folder / "request.json")],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        timeout=120,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return StageResult.model_validate_json((folder / "scratch" / "result.json").read_text())


def test_two_processes_store_the_same_bytes(tmp_path: Path) -> None:
    results = [run_process(tmp_path / seed, make_config(), seed) for seed in ("1", "2")]
    sums = [[(entry.path, entry.crc32c) for split in SPLITS for entry in result.outputs[split]] for result in results]
    assert sums[0] == sums[1]
    assert [path for path, _ in sums[0]] == ["artifact.json", "data.jsonl"] * 3

    store, paths = open_store(f"file://{tmp_path}/1/store"), StagePaths("prepare", "0" * 64)
    stored = store.get(f"{paths.attempt('000001-a').out('held_out')}/artifact.json")
    assert stored is not None
    assert DatasetArtifact.model_validate_json(stored.data).num_rows == 50
    rows = store.get(f"{paths.attempt('000001-a').out('held_out')}/data.jsonl")
    assert rows is not None
    assert json.loads(rows.data.splitlines()[0])["id"] == "held_out-00000"
    (row,) = read_metrics(store, paths)
    assert row.numbers == {"data/train_rows": 100, "data/validation_rows": 30, "data/held_out_rows": 50}


def write_problems(path: Path, answers: list[str]) -> PrepareConfig:
    lines = [json.dumps({"question": f"What is number {index}?", "answer": text}) for index, text in enumerate(answers)]
    path.write_text("\n".join([*lines, lines[0]]) + "\n", encoding="utf-8")
    return PrepareConfig(source=str(path), num_train=4, num_validation=1, num_held_out=2, seed=5)


def test_problems_come_from_a_file_of_json_lines_too(tmp_path: Path) -> None:
    splits = prepare(tmp_path, write_problems(tmp_path / "mine.jsonl", list("abcdefg")))
    rows = [row for split in SPLITS for row in splits[split]]
    assert [len(splits[split]) for split in SPLITS] == [4, 1, 2]
    pairs = {(row.messages[-1].content, row.answer) for row in rows}
    assert pairs == {(f"What is number {index}?", text) for index, text in enumerate("abcdefg")}


def test_a_file_with_too_few_distinct_problems_is_refused(tmp_path: Path) -> None:
    config = write_problems(tmp_path / "mine.jsonl", list("abcdef"))
    with pytest.raises(UserError, match="has only 6 distinct problems"):
        prepare(tmp_path, config)


@pytest.mark.parametrize("line", ['{"question": "a"}', '{"question": "a", "answer": 7}', "no JSON", "[]"])
def test_a_bad_line_is_named_with_its_file_and_number(tmp_path: Path, line: str) -> None:
    config = write_problems(tmp_path / "mine.jsonl", list("abc"))
    with (tmp_path / "mine.jsonl").open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    with pytest.raises(UserError, match=r"mine\.jsonl:5: .*expected \{\"question\""):
        prepare(tmp_path, config)


def test_a_file_that_changed_since_the_plan_is_refused(tmp_path: Path) -> None:
    config = write_problems(tmp_path / "mine.jsonl", list("abcdefg"))
    context = prepare_context(tmp_path, config)
    write_problems(tmp_path / "mine.jsonl", list("ABCDEFG"))
    with pytest.raises(TemperError, match=r"mine\.jsonl"):
        run(context, config)


def test_another_version_of_the_generator_than_the_plan_s_is_refused(tmp_path: Path) -> None:
    config = make_config()
    planned = SourceRef(uri=config.sources[0].source, digest="sha256:" + "0" * 64)
    request = prepare_request(tmp_path, config).model_copy(update={"sources": (planned,)})
    with pytest.raises(UserError, match="not the version that the pipeline was planned with"):
        run(RunContext(request, open_store(request.store), threading.Event()), config)
