"""What a run that did not succeed says to do next."""

from pathlib import Path

from flows.artifacts.next_steps import next_steps
from pipelines.spec.nodes import Pipeline
from stages.store.runs import RunOutcome, RunRecord, RunStage

HOW = Pipeline(
    name="p",
    description="",
    path=Path("/data/p.yaml"),
    profile="tpu",
    store="/data/store",
    params={"seed": 3},
    nodes={},
    overrides=("params.seed=3",),
)


def record(outcome: RunOutcome, *stages: RunStage) -> RunRecord:
    return RunRecord(
        run_id="20260102T030405Z-0badcafe",
        pipeline="p",
        profile="tpu",
        argv=(),
        started="2026-01-02",
        outcome=outcome,
        stages=stages,
    )


def test_a_failed_stage_comes_with_its_cause_advice_its_log_and_how_to_go_on() -> None:
    failed = RunStage(id="sft", kind="sft", key="ab" * 32, outcome="failed", message="oom: killed\n```\ntail")
    text = next_steps(record("failed", failed), HOW)
    assert "### sft\n\n````\noom: killed\n```\ntail\n````" in text
    assert "`train_micro_batch`" in text
    assert "temper logs /data/p.yaml sft --profile tpu --set params.seed=3" in text
    assert text.endswith("```\ntemper run /data/p.yaml --profile tpu --set params.seed=3\n```")


def test_a_gate_that_did_not_pass_comes_with_its_numbers_and_has_no_log() -> None:
    gate = RunStage(
        id="gate", kind="gate", outcome="failed", message="a requirement is not met", lines=("failed: x > 1",)
    )
    text = next_steps(record("failed", gate), HOW)
    assert "### gate\n\na requirement is not met\n\n- failed: x > 1" in text
    assert "temper logs" not in text


def test_a_gate_that_waits_comes_with_the_command_that_approves_it() -> None:
    gate = RunStage(id="ship", kind="gate", outcome="waiting_approval")
    text = next_steps(record("waiting_approval", gate), HOW)
    assert "temper approve /data/p.yaml ship --profile tpu --set params.seed=3\ntemper run " in text
