import json

import pytest
from made_stages import commit, make_spec, paths_of

from stages.contract import DatasetArtifact, ExternalInput, ModelArtifact, SourceRef
from stages.errors import UserError
from stages.store.aliases import AliasRecord, AliasTarget, set_alias
from stages.store.conditional import ConditionalStore
from stages.store.layout import StagePaths
from stages.store.lineage import Origin, TracedStage, trace_back, trace_forward
from stages.store.manifest import Swept
from stages.store.records import encode
from stages.store.survey import survey
from stages.store.targets import find_target

BASE = SourceRef(uri="hf://google/gemma@abc", digest="hf:abc")
ROWS = DatasetArtifact(num_rows=64)
MODEL = ModelArtifact(base=BASE)
DATA, SFT, GRPO, EVALUATION = (paths_of("a", kind) for kind in ("prepare", "sft", "grpo", "evaluation"))


@pytest.fixture
def line(store: ConditionalStore) -> ConditionalStore:
    """prepare → sft → grpo, and an evaluation of the sft that takes the base model too."""
    commit(store, DATA, num_train=64, files={"artifact.json": ROWS.model_dump_json().encode()})
    model = {"artifact.json": MODEL.model_dump_json().encode()}
    commit(store, SFT, [DATA], {"model": ExternalInput(source=BASE)}, files=model, optimizer={"learning_rate": 0.01})
    commit(store, GRPO, [SFT, DATA], files=model)
    commit(store, EVALUATION, [SFT], output="report")
    return store


def back(store: ConditionalStore, paths: StagePaths) -> dict[str, TracedStage]:
    return trace_back(store, survey(store), paths.key)


def kinds(traced: dict[str, TracedStage]) -> list[str]:
    return [stage.kind for stage in traced.values()]


def test_a_checkpoint_is_walked_back_to_rows_settings_code_and_base_model(line: ConditionalStore) -> None:
    traced = back(line, GRPO)
    assert kinds(traced) == ["grpo", "sft", "prepare"]
    sft, data = traced[SFT.key], traced[DATA.key]
    assert data.outputs == {"checkpoint": ROWS}
    assert (data.settings, sft.settings) == ({"num_train": 64}, {"optimizer": {"learning_rate": 0.01}})
    assert sft.inputs == {"in0": Origin(key=DATA.key, output="checkpoint"), "model": Origin(source=BASE)}
    assert (sft.outputs, sft.code, sft.state) == ({"checkpoint": MODEL}, "abc", "committed")
    json.loads(sft.model_dump_json())


def test_descendants_of_an_output_and_of_a_source_are_found_at_any_distance(line: ConditionalStore) -> None:
    found = survey(line)
    assert set(kinds(trace_forward(line, found, Origin(key=DATA.key)))) == {"sft", "grpo", "evaluation"}
    assert set(kinds(trace_forward(line, found, Origin(key=SFT.key, output="checkpoint")))) == {"grpo", "evaluation"}
    assert trace_forward(line, found, Origin(key=SFT.key, output="report")) == {}
    source = Origin(source=SourceRef(uri="elsewhere", digest=BASE.digest))
    assert set(kinds(trace_forward(line, found, source))) == {"sft", "grpo", "evaluation"}
    assert trace_forward(line, found, Origin(source=SourceRef(uri="", digest="hf:other"))) == {}


def test_of_a_stage_that_is_swept_the_identity_is_left(line: ConditionalStore) -> None:
    stored = line.get(SFT.manifest)
    assert stored is not None
    line.swap(SFT.manifest, encode(Swept(attempt="000001-x", swept_at="then")), stored.generation)
    traced = back(line, GRPO)
    assert kinds(traced) == ["grpo", "sft", "prepare"]
    assert (traced[SFT.key].state, traced[SFT.key].outputs) == ("swept", {})
    assert traced[SFT.key].settings == {"optimizer": {"learning_rate": 0.01}}
    assert traced[SFT.key].inputs == {"in0": Origin(key=DATA.key, output="checkpoint")}


def test_an_input_that_the_store_lacks_is_absent(local: ConditionalStore) -> None:
    make_spec(local, SFT, [DATA])
    assert back(local, SFT)[DATA.key].state == "absent"


def test_results_are_named_by_alias_by_the_beginning_of_a_key_and_by_digest(line: ConditionalStore) -> None:
    target = AliasTarget(stage="grpo", key=GRPO.key, output="checkpoint", manifest_generation="1")
    set_alias(line, AliasRecord(name="prod", checkpoint=target, set_by="me", set_at="now"), None)
    found = survey(line)
    assert find_target(line, found, "prod") == Origin(key=GRPO.key, output="checkpoint")
    assert find_target(line, found, SFT.key[:8]) == Origin(key=SFT.key)
    assert find_target(line, found, f"{SFT.key}/checkpoint") == Origin(key=SFT.key, output="checkpoint")
    assert find_target(line, found, "hf:abc").source == SourceRef(uri="", digest="hf:abc")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "no stage of the pipeline, no alias"),
        ("abc123", "no key of at least 8 characters"),
        ("00000000", "no stage whose key begins so"),
    ],
)
def test_what_names_nothing_is_told(local: ConditionalStore, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        find_target(local, survey(local), text)


def test_a_beginning_of_two_keys_is_told(local: ConditionalStore) -> None:
    for end in "12":
        make_spec(local, StagePaths("sft", "a" * 63 + end))
    with pytest.raises(UserError, match=r"2 keys begin so \(sft aaaa.*write more of it"):
        find_target(local, survey(local), "a" * 10)
