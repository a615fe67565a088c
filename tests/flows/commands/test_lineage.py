"""`temper lineage`, on a store with stages that were made by hand."""

import json
from pathlib import Path

import pytest
from made_stages import commit, paths_of

from flows.cli import main
from stages.contract import Adapter, DatasetArtifact, ExternalInput, ModelArtifact, SourceRef, StoredBase
from stages.store.aliases import AliasRecord, AliasTarget, set_alias
from stages.store.local import LocalStore

PIPELINE = """\
version: 1
name: weekly
store: {store}
stages:
  data:
    uses: prepare
    with:
      source: "reasoning_gym://chain_sum?min_terms=2&max_terms=2&min_digits=1&max_digits=1"
      num_train: 8
      num_held_out: 4
      seed: 1
"""
BASE = SourceRef(uri="hf://google/gemma@abc", digest="hf:abc")
DATA, SFT = paths_of("a", "prepare"), paths_of("a", "sft")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A pipeline whose store has rows, and a model that was made from them and that `prod` points to."""
    file = tmp_path / "weekly.yaml"
    file.write_text(PIPELINE.format(store=tmp_path / "store"))
    store = LocalStore(tmp_path / "store")
    rows = DatasetArtifact(num_rows=1500).model_dump_json().encode()
    commit(store, DATA, files={"artifact.json": rows}, num_train=1500)
    adapter = Adapter(file="adapter", rank=8, alpha=16, targets=("q",))
    model = ModelArtifact(base=BASE, adapter=adapter).model_dump_json().encode()
    commit(store, SFT, [DATA], {"model": ExternalInput(source=BASE)}, files={"artifact.json": model}, loss={"z": 0.5})
    target = AliasTarget(stage="sft", key=SFT.key, output="checkpoint", manifest_generation="1")
    set_alias(store, AliasRecord(name="prod", checkpoint=target, set_by="me", set_at="now"), None)
    return file


def test_a_tree_leads_from_a_checkpoint_to_rows_and_base_model(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lineage", str(file), "prod"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"sft {SFT.key[:16]}, committed 2026-01-01 00:00:00 UTC",
        "│  checkpoint: adapter of rank 8 on base hf://google/gemma@abc (hf:abc)",
        "│  settings: loss.z=0.5",
        "│  code: abc",
        "│  version 0, attempt 000001 on here",
        f"├─ in0: checkpoint of prepare {DATA.key[:16]}, committed 2026-01-01 00:00:00 UTC",
        "│     checkpoint: 1,500 rows",
        "│     settings: num_train=1500",
        "│     code: abc",
        "│     version 0, attempt 000001 on here",
        "└─ model: hf://google/gemma@abc (hf:abc)",
    ]


def test_a_model_that_is_whole_tells_what_it_was_made_of(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, paths = ModelArtifact(base=BASE, whole=True).model_dump_json().encode(), paths_of("a", "export")
    commit(LocalStore(file.parent / "store"), paths, [SFT], output="model", files={"artifact.json": whole})
    assert main(["lineage", str(file), paths.key]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "│  model: whole model made from hf://google/gemma@abc (hf:abc)"


def test_an_adapter_over_a_whole_model_names_the_stage_that_made_it(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = StoredBase(stage="export", key="ef" * 32, output="model", checksums={})
    adapter = Adapter(file="adapter.safetensors", rank=8, alpha=16.0, targets=("q_proj",))
    model, paths = ModelArtifact(base=base, adapter=adapter).model_dump_json().encode(), paths_of("over")
    commit(LocalStore(file.parent / "store"), paths, files={"artifact.json": model})
    assert main(["lineage", str(file), paths.key]) == 0
    shown = capsys.readouterr().out.splitlines()[1]
    assert shown == "   checkpoint: adapter of rank 8 on base model of export efefefefefefefef"


def test_descendants_of_a_source_are_listed_as_text_and_as_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lineage", str(file), "hf:abc", "--forward"]) == 0
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == "hf:abc: 1 results were made of it"
    assert second == f"  sft {SFT.key[:16]}, committed 2026-01-01 00:00:00 UTC"
    assert third == f"    from in0 = checkpoint of {DATA.key[:16]}, model = hf://google/gemma@abc (hf:abc)"
    assert main(["lineage", str(file), f"{DATA.key[:10]}/checkpoint", "--forward", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["target"]["key"] == DATA.key
    assert [stage["key"] for stage in answer["stages"]] == [SFT.key]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("data", "not in the store"),
        ("data/train", "not in the store"),
        ("hf:abc", "give --forward"),
        ("dat", "no stage of the pipeline"),
    ],
)
def test_what_cannot_be_traced_is_bad_usage(
    file: Path, target: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lineage", str(file), target]) == 2
    assert message in capsys.readouterr().err
