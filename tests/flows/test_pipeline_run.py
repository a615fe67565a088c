"""What a run decides by itself, with real stage processes and no scheduler."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from flows.pipeline_run import PipelineRun, Surroundings
from flows.planning import Planning
from pipelines.spec.load import load_pipeline
from pipelines.spec.nodes import StageNode
from stages.store.aliases import read_alias
from stages.store.approvals import Approval, write_approval
from stages.store.conditional import open_store
from stages.store.layout import StagePaths
from stages.store.manifest import manifest_digest, quarantine, read_manifest
from stages.store.runs import RunRecord
from tasks.display import Display
from tasks.execute_stage import execute_stage
from tasks.observer import LineObserver
from tasks.stage_work import StageFailedError
from tasks.stopping import StopSignal

WritePipeline = Callable[..., Path]
MakeRun = Callable[[str], PipelineRun]

SWEEP = """\
  sweep:
    uses: probe
    matrix: {seed: [1, 3, 2]}
    max_parallel: 2
    with: {seed: "${matrix.seed}", num_steps: 1}
  best:
    action: select_best
    inputs: {candidates: "${stages.sweep[*].outputs.checkpoint}", reports: "${stages.sweep[*].outputs.report}"}
    with: {metric: total, mode: max}
"""


@pytest.fixture
def make_run(own_places: None, probe_kinds: None, write_pipeline: WritePipeline) -> MakeRun:
    """A run of stages written as YAML; another one of the same store each time."""
    count = iter(range(1, 9))

    def make(stages: str) -> PipelineRun:
        pipeline = load_pipeline(write_pipeline(stages))
        planning = Planning(pipeline, open_store(pipeline.store), f"20260101T00000{next(count)}Z-test")
        return PipelineRun(planning.first(), planning, Surroundings(Display(Console()), StopSignal(), None))

    return make


def drive(run: PipelineRun) -> RunRecord:
    """Run what is ready, one after another, until nothing is."""
    while ready := run.ready():
        for planned in ready:
            if not isinstance(planned.node, StageNode):
                run.decide(planned)
                continue
            run.started(planned.node.id)
            try:
                run.done(planned.node.id, execute_stage(run.work(planned), LineObserver(print)))
            except StageFailedError as error:
                run.failed(planned.node.id, error)
    return run.finish()


def outcomes(record: RunRecord) -> dict[str, str]:
    return {stage.id: stage.outcome for stage in record.stages}


def message(record: RunRecord, node_id: str) -> str:
    return next(stage.message for stage in record.stages if stage.id == node_id)


def approve(run: PipelineRun, gate: str, *, approved: bool, by: str = "ada") -> None:
    planned = run.plan.nodes[gate]
    assert planned.key is not None
    stages = {node_id: run.plan.nodes[node_id].key for node_id in ("one",)}
    manifest = read_manifest(run.store, StagePaths("probe", str(stages["one"])))
    assert manifest is not None
    write_approval(
        run.store,
        Approval(
            gate_key=planned.key,
            pipeline=run.plan.pipeline.name,
            gate=gate,
            approved=approved,
            by=by,
            at=datetime.now(UTC).isoformat(),
            stages={"one": manifest.key},
            manifests={"one": manifest_digest(manifest)},
        ),
    )


def test_no_more_of_a_group_are_ready_than_may_run_at_once(make_run: MakeRun) -> None:
    run = make_run(SWEEP)
    ready = [planned.node.id for planned in run.ready()]
    assert ready == ["sweep[seed=1]", "sweep[seed=3]"]
    for node_id in ready:
        run.started(node_id)
    assert run.ready() == []
    run.failed("sweep[seed=3]", StageFailedError("bug", "broken"))
    assert [planned.node.id for planned in run.ready()] == ["sweep[seed=2]"]


def test_the_stages_after_a_choice_get_their_keys_from_what_was_chosen(make_run: MakeRun) -> None:
    after = "  after: {uses: probe_tuner, inputs: {model: '${stages.best.outputs.checkpoint}'}, with: {num_steps: 1}}\n"
    run = make_run(SWEEP + after)
    assert run.plan.nodes["after"].key is None
    record = drive(run)
    assert outcomes(record) == {
        "sweep[seed=1]": "done",
        "sweep[seed=3]": "done",
        "sweep[seed=2]": "done",
        "best": "done",
        "after": "done",
    }
    assert message(record, "best") == "chose sweep[seed=3]"
    assert record.stages[-1].key == run.plan.nodes["after"].key is not None
    assert record.stages[-1].numbers == {"loss": 5.0}, "the best total is 4, and a step of its own adds 1"
    more = SWEEP.replace("[1, 3, 2]", "[1, 3, 2, 0]")
    again = drive(make_run(more + after))
    assert outcomes(again)["sweep[seed=0]"] == "done"
    assert outcomes(again)["after"] == "reused", "a candidate that lost changes nothing for what follows"


def test_a_condition_on_a_report_is_decided_when_the_report_is_there(make_run: MakeRun) -> None:
    stages = (
        "  one: {uses: probe, with: {num_steps: 1}}\n"
        '  low: {uses: probe, if: "${stages.one.outputs.report.total} < 1", with: {seed: 5}}\n'
        "  after_low: {uses: probe, needs: [low], with: {seed: 6}}\n"
        '  high: {uses: probe, if: "${stages.one.outputs.report.total} >= 1", with: {seed: 7, num_steps: 1}}\n'
    )
    record = drive(make_run(stages))
    assert outcomes(record) == {"one": "done", "low": "skipped", "after_low": "skipped", "high": "done"}
    assert message(record, "after_low") == "low: skipped"
    assert record.outcome == "succeeded"
    again = drive(make_run(stages))
    assert outcomes(again) == {"one": "reused", "low": "skipped", "after_low": "skipped", "high": "reused"}


def test_a_person_decides_once_and_for_the_results_that_were_there(make_run: MakeRun) -> None:
    stages = (
        "  one: {uses: probe, with: {num_steps: 1}}\n"
        "  ask: {gate: human, needs: [one], ask: {approvers: [leads], timeout: 7d}}\n"
        "  two: {uses: probe, needs: [ask], with: {seed: 2, num_steps: 1}}\n"
        "  beside: {uses: probe, with: {seed: 3, num_steps: 1}}\n"
    )
    run = make_run(stages)
    record = drive(run)
    assert (record.outcome, record.message) == ("waiting_approval", "ask")
    assert outcomes(record) == {"one": "done", "ask": "waiting_approval", "two": "waiting", "beside": "done"}
    assert [planned.node.id for planned in run.awaiting] == ["ask"]
    assert message(record, "ask") == f"temper approve {run.plan.pipeline.path} ask"
    approve(run, "ask", approved=True)
    run.ask_again()
    record = drive(run)
    assert (record.outcome, outcomes(record)["ask"], outcomes(record)["two"]) == ("succeeded", "passed", "done")
    assert message(record, "ask") == "approved by ada"
    assert set(outcomes(drive(make_run(stages))).values()) == {"reused", "passed"}, "the approval outlives the run"
    approve(run, "ask", approved=False, by="bob")
    record = drive(make_run(stages))
    assert (record.outcome, record.message) == ("failed", "gate ask did not pass")
    assert message(record, "ask") == "rejected by bob"


def test_a_gate_that_asks_leaves_to_a_person_what_its_requirements_refuse(make_run: MakeRun) -> None:
    stages = (
        "  one: {uses: probe, with: {num_steps: 1}}\n"
        "  gate: {gate: eval, inputs: {report: '${stages.one.outputs.report}'}, require: ['total > 9'], on_fail: ask}\n"
        "  two: {uses: probe, needs: [gate], with: {seed: 2, num_steps: 1}}\n"
    )
    run = make_run(stages)
    record = drive(run)
    assert record.outcome == "waiting_approval"
    assert record.stages[1].lines == ("failed: total > 9 (total = 1)",)
    approve(run, "gate", approved=True)
    record = drive(make_run(stages))
    assert outcomes(record) == {"one": "reused", "gate": "passed", "two": "done"}


def test_an_alias_moves_only_past_its_gate_and_is_a_model_to_start_from(make_run: MakeRun) -> None:
    stages = """\
  one: {{uses: probe, with: {{num_steps: 1}}}}
  gate: {{gate: eval, inputs: {{report: '${{stages.one.outputs.report}}'}}, require: ['total > {floor}']}}
  promote:
    action: set_alias
    needs: [gate]
    inputs: {{checkpoint: '${{stages.one.outputs.checkpoint}}', report: '${{stages.one.outputs.report}}'}}
    with: {{alias: prod}}
"""
    refused = make_run(stages.format(floor=9))
    assert drive(refused).message == "gate gate did not pass"
    assert read_alias(refused.store, "prod") is None
    record = drive(make_run(stages.format(floor=0)))
    assert outcomes(record) == {"one": "reused", "gate": "passed", "promote": "done"}
    found = read_alias(refused.store, "prod")
    assert found is not None
    assert (found[0].checkpoint.key, found[0].set_by) == (record.stages[0].key, record.run_id)
    tuned = drive(make_run("  more: {uses: probe_tuner, inputs: {model: '${aliases.prod}'}, with: {num_steps: 1}}\n"))
    assert outcomes(tuned) == {"more": "done"}
    assert tuned.stages[0].inputs == {"model": "aliases.prod"}


def test_what_another_run_committed_meanwhile_is_a_deviation_from_the_plan(make_run: MakeRun) -> None:
    stages = "  one: {uses: probe, with: {num_steps: 1}}\n"
    late = make_run(stages)
    assert outcomes(drive(make_run(stages))) == {"one": "done"}
    record = drive(late)
    assert outcomes(record) == {"one": "reused"}
    assert len(record.deviations) == 1
    assert record.deviations[0].startswith("one: planned to run, but attempt 000001-")


def test_a_gate_that_cannot_be_decided_fails_the_run_and_leaves_other_branches_alone(make_run: MakeRun) -> None:
    gate = "gate: eval, inputs: {report: '${stages.one.outputs.report}'}, require: ['accuracy > 0']"
    stages = (
        "  one: {uses: probe, with: {num_steps: 1}}\n"
        f"  gate: {{{gate}, on_fail: skip_downstream}}\n"
        "  two: {uses: probe, needs: [gate], with: {seed: 2, num_steps: 1}}\n"
        "  beside: {uses: probe, needs: [one], with: {seed: 3, num_steps: 1}}\n"
    )
    record = drive(make_run(stages))
    assert outcomes(record) == {"one": "done", "gate": "failed", "two": "skipped", "beside": "done"}
    assert (record.outcome, record.message) == ("failed", "gate")
    assert "the report has no metric `accuracy`" in message(record, "gate")


def test_an_action_that_fails_leaves_other_branches_alone(make_run: MakeRun) -> None:
    stages = (
        SWEEP.replace("total, mode", "accuracy, mode")
        + "  after: {uses: probe_tuner, inputs: {model: '${stages.best.outputs.checkpoint}'}}\n"
        + "  beside: {uses: probe, needs: ['sweep[seed=2]'], with: {seed: 9, num_steps: 1}}\n"
    )
    record = drive(make_run(stages))
    assert {key: outcomes(record)[key] for key in ("best", "after", "beside")} == {
        "best": "failed",
        "after": "skipped",
        "beside": "done",
    }
    assert (record.outcome, record.message) == ("failed", "best")


def test_an_alias_that_moved_since_the_run_compared_with_it_is_left_where_it_is(make_run: MakeRun) -> None:
    promote = """\
  promote:
    action: set_alias
    inputs: {checkpoint: '${stages.one.outputs.checkpoint}', report: '${stages.one.outputs.report}'}
    with: {alias: prod}
"""
    one = "  one: {{uses: probe, with: {{seed: {seed}, num_steps: 1}}}}\n"
    drive(make_run(one.format(seed=1) + promote))
    more = "  more: {uses: probe_tuner, needs: [promote], inputs: {model: '${aliases.prod}'}, with: {num_steps: 1}}\n"
    run = make_run(one.format(seed=2) + promote + more)
    drive(make_run(one.format(seed=3) + promote))
    record = drive(run)
    assert outcomes(record) == {"one": "done", "promote": "failed", "more": "skipped"}
    found = read_alias(run.store, "prod")
    assert found is not None
    assert found[0].set_by != record.run_id
    assert "moved since this run was planned" in message(record, "promote")


def test_a_result_that_is_set_aside_while_the_run_goes_on_is_made_again(make_run: MakeRun) -> None:
    stages = SWEEP + (
        "  tuned: {uses: probe_tuner, inputs: {model: '${stages.best.outputs.checkpoint}'}, with: {num_steps: 1}}\n"
        "  more: {uses: probe, needs: [best], with: {seed: 7, num_steps: 1}}\n"
        "  other:\n"
        "    action: select_best\n"
        "    needs: [tuned]\n"
        "    inputs: {candidates: '${stages.more.outputs.checkpoint}', reports: '${stages.more.outputs.report}'}\n"
        "    with: {metric: total, mode: max}\n"
        "  last: {uses: probe_tuner, needs: [other], inputs: {model: '${stages.best.outputs.checkpoint}'}}\n"
    )
    run = make_run(stages)
    while run.outcome("other") == "waiting":
        for planned in run.ready():
            if isinstance(planned.node, StageNode):
                run.done(planned.node.id, execute_stage(run.work(planned), LineObserver(print)))
                continue
            if planned.node.id == "other":
                lost = StagePaths("probe", str(run.plan.nodes["sweep[seed=1]"].key))
                quarantine(run.store, lost, "a test")
            run.decide(planned)
    record = drive(run)
    assert record.outcome == "succeeded"
    assert (outcomes(record)["sweep[seed=1]"], outcomes(record)["last"]) == ("resumed", "done")
    assert "sweep[seed=1]: its result was set aside meanwhile" in record.deviations
