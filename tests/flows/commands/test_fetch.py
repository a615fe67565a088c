"""`temper fetch`, from a store on disk and one in a bucket."""

import stat
from pathlib import Path

import pytest
from made_stages import commit, paths_of

from flows.cli import main
from stages.store.aliases import AliasRecord, AliasTarget, set_alias
from stages.store.conditional import ConditionalStore, open_store
from stages.store.layout import StagePaths

EXPORT = paths_of("a", "export")
FILES = {"config.json": b"{}", "model.safetensors": b"tensors"}


def pipeline_of(folder: Path, store: str) -> Path:
    file = folder / "weekly.yaml"
    stage = "{uses: prepare, with: {source: 'reasoning_gym://chain_sum', num_train: 8, num_held_out: 4, seed: 1}}"
    file.write_text(f"version: 1\nname: weekly\nstore: {store}\nstages:\n  data: {stage}\n")
    return file


def commit_export(store: ConditionalStore, paths: StagePaths = EXPORT) -> None:
    commit(store, paths, files=FILES, output="model")


@pytest.fixture(params=["disk", "bucket"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A pipeline whose store has an exported model."""
    uri = str(tmp_path / "store") if request.param == "disk" else request.getfixturevalue("gcs_store_uri")
    commit_export(open_store(uri))
    return pipeline_of(tmp_path, uri)


def test_the_only_output_of_a_result_is_copied_to_a_new_folder(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new" / "model"
    assert main(["fetch", str(file), EXPORT.key[:10], str(folder)]) == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == FILES
    assert all(path.stat().st_mode & stat.S_IWUSR for path in folder.iterdir())
    assert capsys.readouterr().out == f"model of export {EXPORT.key[:16]}: 2 files, 9 bytes in {folder}\n"


def test_what_an_alias_points_to_is_copied(file: Path, tmp_path: Path) -> None:
    store = open_store(file.read_text().splitlines()[2].removeprefix("store: "))
    target = AliasTarget(stage="export", key=EXPORT.key, output="model", manifest_generation="1")
    set_alias(store, AliasRecord(name="prod", checkpoint=target, set_by="me", set_at="now"), None)
    assert main(["fetch", str(file), "prod", str(tmp_path / "model")]) == 0
    assert (tmp_path / "model" / "config.json").read_bytes() == b"{}"


def test_a_folder_with_something_in_it_is_left_alone(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").write_text("kept")
    for used in (tmp_path, tmp_path / "mine"):
        assert main(["fetch", str(file), EXPORT.key, str(used)]) == 2
        assert f"{used}: is there already" in capsys.readouterr().err
    assert (tmp_path / "mine").read_text() == "kept"


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("data", "'data': not committed in the store"),
        (f"{EXPORT.key[:10]}/weights", f"name one of its outputs, as in {EXPORT.key[:10]}/model: model"),
        ("unheard-of", "'unheard-of': no stage of the pipeline, no alias"),
    ],
)
def test_what_is_not_there_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], result: str, message: str
) -> None:
    commit_export(open_store(str(tmp_path / "store")))
    assert main(["fetch", str(pipeline_of(tmp_path, str(tmp_path / "store"))), result, str(tmp_path / "model")]) == 2
    assert message in capsys.readouterr().err


def test_a_damaged_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit_export(open_store(str(tmp_path / "store")))
    (damaged,) = (tmp_path / "store").rglob("model.safetensors")
    damaged.write_bytes(b"tensorz")
    assert main(["fetch", str(pipeline_of(tmp_path, str(tmp_path / "store"))), EXPORT.key, str(tmp_path / "m")]) == 1
    assert "output 'model', model.safetensors" in capsys.readouterr().err
