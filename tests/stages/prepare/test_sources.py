"""Rows of several sources and formats, mixed, checked and reported."""

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from prepare_trial import prepare_context
from pyarrow import parquet

from stages.contract import ARTIFACT_FILE, ReportArtifact
from stages.engine.data.records import ChatRow, PreferenceRow, Record, Row, TextRow, open_dataset
from stages.errors import PreemptedError, UserError
from stages.prepare.config import PrepareConfig
from stages.prepare.run import run
from stages.sources.resolve import resolve

KINDS = (Row, ChatRow, TextRow, PreferenceRow)


def write(path: Path, rows: Sequence[Mapping[str, object]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def chats(name: str, num: int) -> list[dict[str, object]]:
    return [{"prompt": f"{name} {number}?", "completion": f"{number}!"} for number in range(num)]


class Prepared:
    """What the stage leaves for some settings."""

    def __init__(self, folder: Path, settings: Mapping[str, object], stop: threading.Event | None = None) -> None:
        config = PrepareConfig.model_validate_json(json.dumps({"seed": 3, **settings}))
        self.context = prepare_context(folder, config, stop)
        run(self.context, config)

    def rows(self, split: str) -> list[Record]:
        return list(open_dataset(self.context.output_dir(split), *KINDS))

    def lines(self, split: str) -> list[str]:
        return (self.context.output_dir(split) / "data.jsonl").read_text().splitlines()

    @property
    def metrics(self) -> Mapping[str, float]:
        report = (self.context.output_dir("report") / ARTIFACT_FILE).read_bytes()
        return ReportArtifact.model_validate_json(report).metrics

    @property
    def table(self) -> str:
        return (self.context.output_dir("report") / "data.md").read_text()


def test_settings_of_before_give_the_bytes_of_before(tmp_path: Path) -> None:
    rows = [{"question": f"What is {number % 450} é?", "answer": str(number)} for number in range(500)]
    source = write(tmp_path / "rows.jsonl", rows)
    prepared = Prepared(
        tmp_path, {"source": source, "num_train": 100, "num_validation": 20, "num_held_out": 30, "seed": 5}
    )
    digests = [
        hashlib.sha256((prepared.context.output_dir(split) / "data.jsonl").read_bytes()).hexdigest()[:16]
        for split in ("train", "validation", "held_out")
    ]
    assert digests == ["bd5b3488eaa46c04", "f32db7ab0fba1f7b", "cc49616ab5451b08"]


def test_a_mixture_has_its_proportions_in_every_split(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", chats("a", 90))
    parquet.write_table(
        pa.table({"frage": [f"b {n}?" for n in range(40)], "completion": ["x"] * 40}), tmp_path / "b.parquet"
    )
    sources = [
        {"source": str(tmp_path / "a.jsonl"), "weight": 2},
        {"source": str(tmp_path / "b.parquet"), "columns": {"prompt": "frage"}},
        {"source": "reasoning_gym://chain_sum?max_digits=2", "weight": 1},
    ]
    settings = {"source": sources, "rows": "conversation", "num_held_out": 8, "num_validation": 4}
    prepared = Prepared(tmp_path, settings)

    def count(split: str) -> list[int]:
        lines = prepared.lines(split)
        return [sum(sign in line for line in lines) for sign in ('"a ', '"b ', "arithmetic")]

    assert [count(split) for split in ("held_out", "validation", "train")] == [[4, 2, 2], [2, 1, 1], [75, 37, 37]]
    assert {type(row) for row in prepared.rows("train")} == {ChatRow}
    assert len({row.id for row in prepared.rows("train")}) == 149
    assert "| reasoning_gym://chain_sum?max_digits=2 |" in prepared.table


def test_rows_of_different_kinds_are_not_mixed_unasked(tmp_path: Path) -> None:
    sources = [
        {"source": write(tmp_path / "a.jsonl", chats("a", 9))},
        {"source": write(tmp_path / "b.jsonl", [{"text": "Once"}])},
    ]
    with pytest.raises(UserError, match=r"a\.jsonl of kind 'conversation', .*b\.jsonl of kind 'text'; `rows: conv"):
        Prepared(tmp_path, {"source": sources})
    with pytest.raises(UserError, match="a row of kind 'text' cannot become one of kind 'conversation'"):
        Prepared(tmp_path, {"source": sources, "rows": "conversation"})


def test_rows_that_differ_in_case_and_space_only_are_one_and_no_prompt_is_in_two_splits(tmp_path: Path) -> None:
    rows = [
        *chats("a", 40),
        {"prompt": " A  1?", "completion": "1!"},
        *({**row, "completion": "?"} for row in chats("a", 40)),
    ]
    source = write(tmp_path / "a.jsonl", rows)
    prepared = Prepared(tmp_path, {"source": source, "held_out_share": 0.1, "num_validation": 4})
    assert prepared.metrics["duplicate_rows"] == 1
    assert prepared.metrics["held_out_rows"] == 8
    assert f"    - {source}:41" in prepared.table.splitlines()
    asked = {
        split: {row.messages[0].content for row in prepared.rows(split) if isinstance(row, ChatRow)}
        for split in ("train", "held_out", "validation")
    }
    assert not asked["held_out"] & asked["train"]
    assert not asked["validation"] & (asked["train"] | asked["held_out"])
    used = sum(prepared.metrics[f"{split}_rows"] for split in ("train", "validation", "held_out"))
    assert used + prepared.metrics["prompt_elsewhere_rows"] == 80
    assert prepared.metrics["prompt_elsewhere_rows"] > 0
    kept = Prepared(tmp_path / "off", {"source": source, "deduplicate": "off"})
    assert kept.metrics["train_rows"] == 81
    exact = Prepared(tmp_path / "exact", {"source": source, "deduplicate": "exact"})
    assert exact.metrics["train_rows"] == 81


def test_rows_are_left_out_for_their_length_and_pairs_for_being_one(tmp_path: Path) -> None:
    pairs = [{"prompt": "abc", "chosen": "d" * number, "rejected": "e"} for number in (1, 4, 9)]
    pairs.append({"prompt": "abc", "chosen": "same", "rejected": "same"})
    limits = {"min_characters": 6, "max_characters": 12, "max_messages": 3}
    prepared = Prepared(tmp_path, {"source": write(tmp_path / "a.jsonl", pairs), "lengths": limits})
    (row,) = prepared.rows("train")
    assert isinstance(row, PreferenceRow)
    assert row.chosen[0].content == "dddd"
    numbers = prepared.metrics
    assert [numbers[f"{reason}_rows"] for reason in ("too_short", "too_long", "same_replies", "read")] == [1, 1, 1, 4]
    assert numbers["train_characters_max"] == 8
    assert "1 × the chosen reply is the rejected one" in prepared.table


def test_bad_rows_end_the_stage_with_their_places_or_are_left_out_and_counted(tmp_path: Path) -> None:
    source = write(tmp_path / "a.jsonl", [*chats("a", 3), {"prompt": 7, "completion": "x"}, {"prompt": "x"}])
    with pytest.raises(
        UserError, match=r"(?s)a\.jsonl:4: expected text.*a\.jsonl:5: `completion`.*missing; expected {"
    ) as told:
        Prepared(tmp_path, {"source": source})
    assert "`bad_rows: skip`" in str(told.value)
    prepared = Prepared(tmp_path, {"source": source, "bad_rows": "skip"})
    assert (prepared.metrics["bad_rows"], prepared.metrics["train_rows"]) == (2, 3)
    assert f"{source}:4: expected text or messages, not 7" in prepared.table


def test_columns_that_no_format_has_are_named(tmp_path: Path) -> None:
    source = write(tmp_path / "a.jsonl", [{"frage": "a", "antwort": "b"}])
    with pytest.raises(
        UserError, match=r"a\.jsonl:1: no known format has its columns \(frage, antwort\).*say by `columns`"
    ):
        Prepared(tmp_path, {"source": source})
    named = {"source": source, "format": "problem", "columns": {"question": "frage", "answer": "antwort"}}
    assert Prepared(tmp_path, {"source": [named]}).metrics["train_rows"] == 1


def test_a_system_prompt_goes_before_prompts_that_have_none(tmp_path: Path) -> None:
    own = {
        "messages": [
            {"role": "system", "content": "own"},
            {"role": "user", "content": "a"},
            {"role": "bot", "content": "b"},
        ]
    }
    given = {"prompt": "c", "completion": "d"}
    sources = [{"source": write(tmp_path / "a.jsonl", [own])}, {"source": write(tmp_path / "b.jsonl", [given])}]
    rows = Prepared(tmp_path, {"source": sources, "system_prompt": "ours"}).rows("train")
    found = {row.messages[0].content: row.num_given for row in rows if isinstance(row, ChatRow)}
    assert found == {"own": 0, "ours": 2}
    text = write(tmp_path / "c.jsonl", [{"text": "a"}])
    with pytest.raises(UserError, match="system_prompt: rows of text have no system message"):
        Prepared(tmp_path, {"source": text, "system_prompt": "ours"})


def test_a_recipe_makes_rows_and_is_known_by_its_content(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.py"
    recipe.write_text("def create_dataset():\n    return [{'text': str(number)} for number in range(5)]\n")
    uri = f"{recipe}:create_dataset"
    before = resolve(uri, tmp_path)
    assert len(Prepared(tmp_path, {"source": uri}).rows("train")) == 5
    assert resolve("recipe.py:create_dataset", tmp_path) == before
    assert resolve("recipe.py:other", tmp_path).digest != before.digest
    recipe.write_text("def create_dataset():\n    return []\n")
    assert resolve(uri, tmp_path).digest != before.digest
    with pytest.raises(UserError, match="has no rows"):
        Prepared(tmp_path, {"source": uri})
    with pytest.raises(UserError, match="there is no such file"):
        resolve("none.py:create_dataset", tmp_path)


def test_too_few_rows_and_endless_ones_are_told(tmp_path: Path) -> None:
    sources = [{"source": write(tmp_path / name, chats(name, num))} for name, num in (("a.jsonl", 50), ("b.jsonl", 5))]
    with pytest.raises(
        UserError, match=r"b\.jsonl has only 5 distinct rows for the split 'train' .* but 20 are wanted"
    ):
        Prepared(tmp_path, {"source": sources, "num_train": 40})
    with pytest.raises(UserError, match="has no end: say by num_train"):
        Prepared(tmp_path, {"source": "reasoning_gym://chain_sum"})
    with pytest.raises(UserError, match="no row is left to train on; 5 were left out"):
        Prepared(tmp_path, {"source": sources[1]["source"], "lengths": {"max_characters": 1}})
    with pytest.raises(ValueError, match="leave no row to train on"):
        Prepared(tmp_path, {"source": "x", "validation_share": 0.5, "held_out_share": 0.5})


def test_it_stops_while_it_reads_a_file_and_leaves_nothing(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(PreemptedError):
        Prepared(tmp_path, {"source": write(tmp_path / "a.jsonl", chats("a", 200))}, stop)
    assert not (tmp_path / "scratch" / "out").exists()
    assert list((tmp_path / "scratch" / "scratch").iterdir()) == []
