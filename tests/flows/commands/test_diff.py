import json
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.cli import main
from flows.run_record import describe, new_record
from pipelines.spec.load import load_pipeline
from pipelines.spec.plan import make_plan
from stages.store.aliases import AliasRecord, AliasTarget, set_alias
from stages.store.conditional import open_store
from stages.store.layout import StagePaths
from stages.store.manifest import write_spec
from stages.store.runs import write_run

PIPELINE = """\
version: 1
name: tiny
store: {store}
stages:
  data:
    uses: prepare
    with: {{source: rows.jsonl, num_train: 8, num_held_out: 4, seed: 7}}
"""
RUNS = ("20260101T000000Z-aaaaaaaa", "20260102T000000.123Z-bbbbbbbb")


@pytest.fixture
def temper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """`temper diff` over a store with two runs: the second has another seed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "tiny.yaml"
    file.write_text(PIPELINE.format(store=tmp_path / "store"))
    (tmp_path / "rows.jsonl").write_text("{}\n")
    for run_id, overrides in zip(RUNS, ((), ("stages.data.with.seed=8",)), strict=True):
        pipeline = load_pipeline(file, None, overrides)
        store = open_store(pipeline.store)
        plan = make_plan(pipeline, store)
        data = plan.nodes["data"]
        assert data.key is not None
        assert data.payload is not None
        write_spec(store, StagePaths(data.kind, data.key), data.payload)
        record = new_record(pipeline, run_id, None)
        write_run(store, record.model_copy(update={"stages": (describe(data),)}))

    def temper(*arguments: str, code: int = 0) -> str:
        assert main(["diff", str(file), *arguments]) == code
        return "".join(capsys.readouterr())

    return temper


def test_two_runs_are_compared(temper: Callable[..., str]) -> None:
    assert temper(*RUNS).startswith("first difference: data, with.seed: 7 → 8\n\ndata  ")
    assert temper(RUNS[0], "latest", "--exit-code", code=10) == temper(*RUNS)
    assert temper(RUNS[0], "plan", "--exit-code") == "no difference\n"


def test_json_tells_the_first_difference_and_every_stage(temper: Callable[..., str]) -> None:
    told = json.loads(temper(*RUNS, "--json"))
    change = {"path": "with.seed", "before": "7", "after": "8"}
    assert told["first"] == {"stage": "data", "change": change}
    assert told["stages"][0]["changes"] == [change]
    assert not told["same"]


def test_keys_and_aliases_are_compared(temper: Callable[..., str], tmp_path: Path) -> None:
    stage = json.loads(temper(*RUNS, "--json"))["stages"][0]
    target = AliasTarget(stage="prepare", key=stage["after"], output="train", manifest_generation="1")
    record = AliasRecord(name="prod", checkpoint=target, set_by="me", set_at="2026-01-03")
    set_alias(open_store(str(tmp_path / "store")), record, None)
    assert temper(stage["before"][:8], "prod").startswith("first difference: prepare, with.seed: 7 → 8\n")


@pytest.mark.parametrize(
    ("sides", "message"),
    [
        (("latest", "dev"), "'dev': no run, `latest`, `plan`, alias, or 8 or more characters of a key"),
        (("20270101T000000Z-x", "plan"), "20270101T000000Z-x: tiny has no such run in the store"),
        (("00000000", "plan"), "'00000000': the store has no such key"),
    ],
)
def test_a_side_that_names_nothing_is_bad_usage(
    sides: tuple[str, str], message: str, temper: Callable[..., str]
) -> None:
    assert message in temper(*sides, code=2)


def test_a_run_does_not_compare_with_a_result(temper: Callable[..., str]) -> None:
    key = json.loads(temper(*RUNS, "--json"))["stages"][0]["before"]
    assert "a run compares with a run, a result with a result" in temper("latest", key, code=2)
