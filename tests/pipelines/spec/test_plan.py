import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipelines.spec.damage import set_damaged_aside
from pipelines.spec.diagnostics import SpecError
from pipelines.spec.nodes import Pipeline, StageNode
from pipelines.spec.plan import make_plan
from pipelines.spec.plan_json import plan_json
from pipelines.spec.plan_text import plan_text
from pipelines.spec.planned import Plan
from pipelines.spec.stage_inputs import stage_inputs
from stages.contract import ExternalInput, StoredInput
from stages.errors import UserError
from stages.store.layout import StagePaths
from stages.store.local import LocalStore
from stages.store.manifest import Manifest, quarantine

Load = Callable[..., Pipeline]
Commit = Callable[..., Manifest]
CommitAll = Callable[..., dict[str, Manifest]]


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def decisions(plan: Plan) -> dict[str, str]:
    return {node: planned.decision for node, planned in plan.nodes.items()}


def reasons(plan: Plan, decision: str) -> dict[str, str]:
    return {node: planned.reason for node, planned in plan.nodes.items() if planned.decision == decision}


def moved(before: Plan, after: Plan, stage: str) -> str:
    """How a changed key shows in a reason."""
    old, new = before.nodes[stage].key, after.nodes[stage].key
    assert old is not None
    assert new is not None
    return f"{old[:4]}→{new[:4]}"


def paths(plan: Plan, stage: str) -> StagePaths:
    planned = plan.nodes[stage]
    assert isinstance(planned.node, StageNode)
    assert planned.key is not None
    return StagePaths(planned.node.kind, planned.key)


# --- reuse and reasons ---------------------------------------------------------------------------


def test_an_empty_store_means_that_everything_runs(load: Load, store: LocalStore) -> None:
    plan = make_plan(load(), store)
    assert decisions(plan) == {"data": "run", "sft": "run", "eval_base": "run", "eval_sft": "run", "gate": "gate"}
    assert set(reasons(plan, "run").values()) == {"never run"}
    assert plan.has_work


def test_a_plan_writes_nothing(load: Load, store: LocalStore, tmp_path: Path) -> None:
    make_plan(load(), store)
    assert store.list("v1") == []


def test_everything_committed_is_reused(load: Load, store: LocalStore, commit_all: CommitAll) -> None:
    manifests = commit_all(make_plan(load(), store))
    plan = make_plan(load(), store)
    assert set(decisions(plan).values()) == {"reuse", "gate"}
    assert not plan.has_work
    assert {planned.manifest.key for planned in plan.nodes.values() if planned.manifest} == set(manifests)


def test_a_changed_setting_runs_its_stage_and_what_follows_and_says_which(
    load: Load, store: LocalStore, commit_all: CommitAll
) -> None:
    before = make_plan(load(), store)
    commit_all(before)
    plan = make_plan(load("stages.sft.with.optimizer.learning_rate=2e-3", "stages.sft.with.num_steps=5"), store)
    assert reasons(plan, "run") == {
        "sft": "with.num_steps: 4 → 5; with.optimizer.learning_rate: 0.001 → 0.002",
        "eval_sft": f"input model changed (sft {moved(before, plan, 'sft')}: with.num_steps: 4 → 5)",
    }
    assert [str(change) for change in plan.nodes["sft"].changes] == [
        "with.num_steps: 4 → 5",
        "with.optimizer.learning_rate: 0.001 → 0.002",
    ]


def test_an_execution_setting_runs_nothing(load: Load, store: LocalStore, commit_all: CommitAll) -> None:
    commit_all(make_plan(load(), store))
    assert not make_plan(load("stages.sft.with.train_micro_batch=1", "defaults={retry: {max: 9}}"), store).has_work


def test_the_name_of_a_stage_is_not_its_identity(load: Load, store: LocalStore, commit_all: CommitAll) -> None:
    commit_all(make_plan(load(), store))
    renamed = {"  sft:\n": "  tuned:\n", "${stages.sft.": "${stages.tuned.", "name: small": "name: other"}
    assert not make_plan(load(replace=renamed), store).has_work


def test_a_bumped_rev_is_a_reason(load: Load, store: LocalStore, commit_all: CommitAll) -> None:
    before = make_plan(load(), store)
    commit_all(before)
    plan = make_plan(load("stages.sft.rev=1"), store)
    changed = f"input model changed (sft {moved(before, plan, 'sft')}: rev: 0 → 1)"
    assert reasons(plan, "run") == {"sft": "rev: 0 → 1", "eval_sft": changed}


def test_changed_content_of_an_input_is_a_reason(
    load: Load, store: LocalStore, commit_all: CommitAll, pipeline_file: Path
) -> None:
    before = make_plan(load(), store)
    commit_all(before)
    (pipeline_file.parent / "base" / "config.json").write_text('{"changed": true}')
    plan = make_plan(load(), store)
    expected = "inputs.model: the content is now that of base"
    assert reasons(plan, "run")["sft"] == reasons(plan, "run")["eval_base"] == expected
    upstream = f"input model changed (sft {moved(before, plan, 'sft')}: inputs.model: "
    assert reasons(plan, "run")["eval_sft"].startswith(upstream)
    (pipeline_file.parent / "rows.jsonl").write_text('{"changed": true}\n')
    assert make_plan(load(), store).nodes["data"].reason.startswith('with.source: "sha256:')


def test_long_lists_of_reasons_are_cut(load: Load, store: LocalStore, commit_all: CommitAll) -> None:
    commit_all(make_plan(load(), store))
    many = ("num_steps=9", "batch_size=16", "max_tokens=9", "optimizer.beta1=0.5", "optimizer.beta2=0.5")
    plan = make_plan(load(*(f"stages.sft.with.{one}" for one in many)), store)
    assert plan.nodes["sft"].reason.endswith("; and 2 more")
    assert len(plan.nodes["sft"].changes) == 5


def test_the_nearest_committed_stage_explains_the_change(load: Load, store: LocalStore, commit_all: CommitAll) -> None:
    commit_all(make_plan(load(), store))
    commit_all(make_plan(load("stages.sft.with.num_steps=8", "stages.sft.with.batch_size=16"), store))
    plan = make_plan(load("stages.sft.with.num_steps=9", "stages.sft.with.batch_size=16"), store)
    assert plan.nodes["sft"].reason == "with.num_steps: 8 → 9"


def test_a_stage_that_never_finished_explains_nothing(load: Load, store: LocalStore, commit: Commit) -> None:
    plan = make_plan(load(), store)
    commit(plan, "data")
    payload = plan.nodes["sft"].payload
    assert payload is not None
    store.create(paths(plan, "sft").spec, payload)
    assert make_plan(load("stages.sft.with.num_steps=9"), store).nodes["sft"].reason == "never run"


# --- resume, damage, quarantine ------------------------------------------------------------------


def test_a_stage_with_saved_progress_is_resumed(
    load: Load, store: LocalStore, commit: Commit, save_progress: Callable[..., None]
) -> None:
    commit(make_plan(load(), store), "data")
    save_progress(make_plan(load(), store), "sft", 2)
    plan = make_plan(load(), store)
    assert reasons(plan, "resume") == {"sft": "from step 2 of attempt 000001"}
    assert plan.nodes["sft"].resume_step == 2
    assert plan.has_work


def test_a_result_with_missing_files_is_made_again_once_it_is_set_aside(
    load: Load, store: LocalStore, commit_all: CommitAll
) -> None:
    commit_all(make_plan(load(), store))
    plan = make_plan(load(), store)
    manifest = plan.nodes["sft"].manifest
    assert manifest is not None
    store.delete(f"{manifest.output_folder('checkpoint')}/data.bin")
    damaged = make_plan(load(), store)
    assert reasons(damaged, "run") == {"sft": "1 of 4 objects missing: run again"}
    assert damaged.nodes["sft"].manifest is None
    assert damaged.nodes["eval_sft"].decision == "reuse"
    set_damaged_aside(damaged, store)
    assert reasons(make_plan(load(), store), "run") == {"sft": "quarantined: checkpoint/data.bin: missing"}


def test_a_result_with_changed_files_is_made_again(load: Load, store: LocalStore, commit_all: CommitAll) -> None:
    commit_all(make_plan(load(), store))
    manifest = make_plan(load(), store).nodes["sft"].manifest
    assert manifest is not None
    file = Path(store.location(f"{manifest.output_folder('report')}/data.bin"))
    file.chmod(0o644)
    file.write_text("other bytes")
    assert make_plan(load(), store).nodes["sft"].reason == "1 of 4 objects missing or changed: run again"


def test_a_deep_check_compares_the_bytes_themselves(load: Load, store: LocalStore, commit_all: CommitAll) -> None:
    commit_all(make_plan(load(), store))
    manifest = make_plan(load(), store).nodes["sft"].manifest
    assert manifest is not None
    file = Path(store.location(f"{manifest.output_folder('report')}/data.bin"))
    stat = file.stat()
    file.chmod(0o644)
    file.write_bytes(bytes(reversed(file.read_bytes())))
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert not make_plan(load(), store).has_work
    assert reasons(make_plan(load(), store, verify="deep"), "run") == {
        "sft": "1 of 4 objects missing or changed: run again"
    }


def test_a_run_that_checks_bytes_takes_over_a_store_that_was_copied_without_its_times(
    load: Load, store: LocalStore, commit_all: CommitAll, tmp_path: Path
) -> None:
    commit_all(make_plan(load(), store))
    shutil.copytree(store.root, tmp_path / "moved", copy_function=shutil.copyfile)
    moved = LocalStore(tmp_path / "moved")
    told = make_plan(load(), moved).nodes["sft"].reason
    assert told == "4 of 4 objects missing or changed: run again, or --verify deep if the store was copied here"
    assert not make_plan(load(), moved, verify="deep").has_work
    assert make_plan(load(), moved).has_work, "a plan only looks"
    assert not make_plan(load(), moved, run_id="run", verify="deep").has_work
    assert not make_plan(load(), moved).has_work


def test_a_quarantined_result_says_why(load: Load, store: LocalStore, commit_all: CommitAll) -> None:
    commit_all(make_plan(load(), store))
    quarantine(store, paths(make_plan(load(), store), "data"), "crc32c differs")
    assert reasons(make_plan(load(), store), "run") == {"data": "quarantined: crc32c differs"}


# --- equal keys ----------------------------------------------------------------------------------

TWIN = {
    "  gate:\n": """\
  eval_again:
    uses: evaluation
    inputs: {model: base, dataset: "${stages.data.outputs.held_out}"}
    with: {sampling: {temperature: 0, max_response_tokens: 4}, rollout_micro_batch: 1}
  gate:
"""
}


def test_nodes_with_equal_keys_run_once(load: Load, store: LocalStore, commit_all: CommitAll) -> None:
    plan = make_plan(load(replace=TWIN), store)
    assert plan.nodes["eval_again"].key == plan.nodes["eval_base"].key
    assert (plan.nodes["eval_again"].decision, plan.nodes["eval_again"].same_as) == ("reuse", "eval_base")
    assert plan.nodes["eval_again"].reason == "same as eval_base"
    commit_all(plan)
    assert make_plan(load(replace=TWIN), store).nodes["eval_again"].manifest is not None


@pytest.mark.parametrize("more", ["needs: [sft]", 'if: "1 == 1"'])
def test_a_node_does_not_rely_on_a_twin_that_waits_for_more(load: Load, store: LocalStore, more: str) -> None:
    waits = {"  eval_base:\n    uses: evaluation\n": f"  eval_base:\n    uses: evaluation\n    {more}\n"}
    plan = make_plan(load(replace=TWIN | waits), store)
    assert plan.nodes["eval_again"].key == plan.nodes["eval_base"].key
    same_as = {node_id: plan.nodes[node_id].same_as for node_id in ("eval_again", "eval_base")}
    assert same_as["eval_again"] is None
    assert same_as["eval_base"] in (None, "eval_again")


# --- selection and force -------------------------------------------------------------------------


def test_until_leaves_out_what_the_stage_does_not_need(load: Load, store: LocalStore) -> None:
    plan = make_plan(load(), store, until="sft")
    assert decisions(plan) == {"data": "run", "sft": "run", "eval_base": "skip", "eval_sft": "skip", "gate": "skip"}
    assert plan.nodes["gate"].reason == "left out by --until"


def test_only_runs_the_stage_on_committed_inputs(load: Load, store: LocalStore, commit: Commit) -> None:
    commit(make_plan(load(), store), "data")
    plan = make_plan(load(), store, only=["sft"])
    assert decisions(plan)["data"] == "reuse"
    assert decisions(plan)["sft"] == "run"
    assert decisions(plan)["eval_sft"] == "skip"


def test_only_refuses_a_stage_whose_inputs_are_not_there(load: Load, store: LocalStore) -> None:
    with pytest.raises(UserError, match=re.escape("--only: sft takes stages.data.outputs.train, which is not comm")):
        make_plan(load(), store, only=["sft"])
    with pytest.raises(UserError, match="choose eval_sft too"):
        make_plan(load(), store, only=["gate"])


def test_flags_that_name_no_stage_are_refused(load: Load, store: LocalStore) -> None:
    with pytest.raises(UserError, match=re.escape("--only stf: no stage of small (did you mean `sft`?)")):
        make_plan(load(), store, only=["stf"])
    with pytest.raises(UserError, match="--until x: no stage of small; it has data, sft, eval_base"):
        make_plan(load(), store, until="x")
    with pytest.raises(UserError, match="--force x: no stage"):
        make_plan(load(), store, force=["x"])
    with pytest.raises(UserError, match="--force gate: gates and actions are decided"):
        make_plan(load(), store, force=["gate"])
    with pytest.raises(UserError, match="--force eval_sft: left out by --until"):
        make_plan(load(), store, force=["eval_sft"], until="sft")
    with pytest.raises(UserError, match="exclude each other"):
        make_plan(load(), store, only=["sft"], until="sft")


def test_a_forced_stage_gets_a_new_identity_that_stays(load: Load, store: LocalStore, commit_all: CommitAll) -> None:
    commit_all(make_plan(load(), store))
    old = make_plan(load(), store)
    forced = make_plan(load(), store, force=["sft"])
    assert reasons(forced, "run") == {
        "sft": "forced",
        "eval_sft": f"input model changed (sft {moved(old, forced, 'sft')}: forced)",
    }
    later = make_plan(load(), store)
    assert later.nodes["sft"].key == forced.nodes["sft"].key != old.nodes["sft"].key
    commit_all(later)
    assert not make_plan(load(), store).has_work
    assert make_plan(load(), store, force=["sft"]).nodes["sft"].key != later.nodes["sft"].key


# --- what a run takes from a plan ----------------------------------------------------------------


def test_a_stage_gets_the_files_of_its_producers_and_sources_by_digest(
    load: Load, store: LocalStore, commit: Commit, pipeline_file: Path
) -> None:
    data = commit(make_plan(load(), store), "data")
    plan = make_plan(load(), store)
    inputs = stage_inputs(plan.nodes["sft"], plan, {data.key: data})
    model, dataset = inputs["model"], inputs["dataset"]
    assert isinstance(model, ExternalInput)
    assert model.source.uri == str(pipeline_file.parent / "base")
    assert model.source.digest.startswith("sha256:")
    assert isinstance(dataset, StoredInput)
    assert (dataset.stage, dataset.key, dataset.output) == ("prepare", data.key, "train")
    assert dataset.folder == data.output_folder("train")
    assert dataset.files == data.outputs["train"]


def test_a_source_that_is_not_there_is_told_with_its_place(load: Load, store: LocalStore, pipeline_file: Path) -> None:
    pipeline = load("params.base_model=nowhere")
    with pytest.raises(SpecError) as raised:
        make_plan(pipeline, store)
    assert str(raised.value).startswith(f"{pipeline_file}:12:14: stages.sft.inputs.model: source ")
    (pipeline_file.parent / "rows.jsonl").unlink()
    with pytest.raises(SpecError) as raised:
        make_plan(load(), store)
    assert str(raised.value).startswith(f"{pipeline_file}:7:3: stages.data.with: source ")


def test_the_json_of_a_plan_says_all_that_it_decided(load: Load, store: LocalStore, commit_all: CommitAll) -> None:
    commit_all(make_plan(load(), store))
    plan = make_plan(load("stages.sft.with.num_steps=5"), store)
    told = json.loads(plan_json(plan))
    assert (told["pipeline"], told["has_work"], told["profile"]) == ("small", True, None)
    assert [node["decision"] for node in told["nodes"]] == ["reuse", "run", "reuse", "run", "gate"]
    assert told["nodes"][1]["changes"] == [{"path": "with.num_steps", "before": "4", "after": "5"}]
    assert told["nodes"][1]["key"] == plan.nodes["sft"].key


def test_the_text_of_a_plan_is_a_table_with_reasons(load: Load, store: LocalStore, commit_all: CommitAll) -> None:
    before = make_plan(load(), store)
    commit_all(before)
    plan = make_plan(load("stages.sft.with.num_steps=5"), store)
    text = plan_text(plan)
    size = sum(stage.bytes for stage in plan.estimate.stages.values())
    assert re.sub(r"[0-9a-f]{16}", "KEY", text) == (
        "data       reuse  KEY  committed 2026-01-01 01:00:00 UTC\n"
        "sft        run    KEY  with.num_steps: 4 → 5\n"
        "eval_base  reuse  KEY  committed 2026-01-01 01:00:00 UTC\n"
        f"eval_sft   run    KEY  input model changed (sft {moved(before, plan, 'sft')}: with.num_steps: 4 → 5)\n"
        "gate       gate                     "
        "accuracy >= 0.5 and delta_low(accuracy, '${stages.eval_base.outputs.report}') > 0\n"
        "\n"
        f"estimate: 2 s from the last 2 commits of each stage; {size} B new; 2 stages reused saves 2 s\n"
        "small: 2 reused, 2 to run, 1 to decide"
    )


def chain(stages: int) -> Iterator[str]:
    for n in range(stages):
        source = "${params.base_model}" if n == 0 else f"${{stages.s{n - 1}.outputs.checkpoint}}"
        yield f"""\
  s{n}:
    uses: sft
    inputs: {{model: "{source}", dataset: "${{stages.data.outputs.train}}"}}
    with:
      model: {{lora: {{rank: 2, alpha: 4}}}}
      optimizer: {{learning_rate: 1e-3}}
      num_steps: 4
      batch_size: 8
      seed: 1
"""


def test_planning_fifty_stages_takes_under_a_second(load: Load, store: LocalStore, commit_all: CommitAll) -> None:
    replace = {"  gate:\n": "".join(chain(50)) + "  gate:\n"}
    commit_all(make_plan(load(replace=replace), store))
    for overrides in ((), ("stages.s0.with.num_steps=3",)):
        started = time.process_time()
        plan = make_plan(load(*overrides, replace=replace), store)
        assert time.process_time() - started < 1.0
        assert plan.has_work == bool(overrides)
