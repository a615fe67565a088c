"""Rows of data sets as they are published, by LLaMA-Factory's own examples."""

from pathlib import Path

import pytest
from prepare_trial import prepare_context
from vocabularies import demo_rows

from stages.contract import ARTIFACT_FILE, ReportArtifact
from stages.engine.data.records import ChatRow, LabelledRow, PreferenceRow, Record, TextRow, open_dataset
from stages.prepare.config import PrepareConfig
from stages.prepare.run import run

KINDS = (ChatRow, LabelledRow, PreferenceRow, TextRow)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "record", "num_rows", "num_same"),
    [
        ("alpaca_en_demo.json", ChatRow, 999, 14),
        ("dpo_en_demo.json", PreferenceRow, 300, 5),
        ("kto_en_demo.json", LabelledRow, 300, 0),
        ("glaive_toolcall_en_demo.json", ChatRow, 300, 35),
        ("c4_demo.jsonl", TextRow, 300, 0),
        ("v1_sft_demo.jsonl", ChatRow, 500, 1),
        ("v1_dpo_demo.jsonl", PreferenceRow, 10, 0),
    ],
)
def test_every_row_is_understood(tmp_path: Path, name: str, record: type[Record], num_rows: int, num_same: int) -> None:
    config = PrepareConfig(source=str(demo_rows(name)), seed=1)
    context = prepare_context(tmp_path, config)
    run(context, config)
    rows = open_dataset(context.output_dir("train"), *KINDS)
    assert rows.record is record
    assert len(list(rows)) == num_rows - num_same
    metrics = ReportArtifact.model_validate_json((context.output_dir("report") / ARTIFACT_FILE).read_bytes()).metrics
    assert (metrics["read_rows"], metrics["duplicate_rows"], metrics["bad_rows"]) == (num_rows, num_same, 0)
    if name.startswith("glaive"):
        called = [row for row in rows if isinstance(row, ChatRow) and any(one.tool_calls for one in row.messages)]
        assert called
        assert all(row.tools for row in called)
