"""Models of a Hub that runs here, and of caches laid out by hand."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub import Repository, serving, write_cache
from huggingface_hub import constants

from stages.contract import SourceRef
from stages.errors import StorageError, UserError
from stages.sources.resolve import check, open_source, resolve

HERE = Path()
OLD, NEW = "a" * 40, "b" * 40
FILES = {
    "config.json": b"{}",
    "model.safetensors": b"tensors",
    "tokenizer.json": b'{"vocab": 1}',
    "chat_template.jinja": b"{{ messages }}",
}
NOT_NEEDED = {"pytorch_model.bin": b"pickles", "README.md": b"words", "onnx/model.onnx": b"graph"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the Hub's tools; the Hub itself answers to nobody."""
    folder = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    return folder


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Repository]]:
    """A Hub's models, with one whose main branch has moved on and whose tag v1 has not."""
    tiny = Repository(
        {OLD: FILES, NEW: {**FILES, **NOT_NEEDED, "config.json": b'{"new": 1}'}}, {"main": NEW, "v1": OLD}
    )
    repositories = {"org/tiny": tiny}
    with serving(repositories) as address:
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}"
        )
        yield repositories


@pytest.mark.parametrize(
    ("uri", "commit"),
    [
        ("hf://org/tiny", NEW),
        ("hf://org/tiny@main", NEW),
        ("hf://org/tiny@v1", OLD),
        (f"hf://org/tiny@{OLD}", OLD),
    ],
)
def test_a_revision_is_identified_by_its_commit(hub: dict[str, Repository], uri: str, commit: str) -> None:
    assert resolve(uri, HERE) == SourceRef(uri=uri, digest=f"hf:{commit}")


def test_the_planned_commit_is_fetched_though_its_branch_moved_and_only_what_a_model_needs(
    hub: dict[str, Repository], tmp_path: Path
) -> None:
    source = resolve("hf://org/tiny", HERE)
    hub["org/tiny"].branches["main"] = OLD
    folder = open_source(source, tmp_path / "cache")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {**FILES, "config.json": b'{"new": 1}'}
    assert folder.name == NEW


def test_a_fetched_model_is_not_fetched_again_nor_looked_up(
    hub: dict[str, Repository], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = resolve("hf://org/tiny@v1", HERE)
    folder = open_source(source, tmp_path)
    hub["org/tiny"].served.clear()
    assert open_source(source, tmp_path) == folder
    assert hub["org/tiny"].served == []
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert resolve("hf://org/tiny@v1", HERE) == source
    assert open_source(source, tmp_path) == folder


def test_a_hand_made_cache_serves_without_a_network(cache: Path, offline: None, tmp_path: Path) -> None:
    snapshot = write_cache(cache, "org/tiny", OLD, FILES, ref="main")
    source = resolve("hf://org/tiny", HERE)
    assert source.digest == f"hf:{OLD}"
    assert open_source(source, tmp_path) == snapshot.resolve()


def test_a_hub_that_does_not_answer_leaves_what_the_cache_knows(cache: Path) -> None:
    write_cache(cache, "org/tiny", OLD, FILES, ref="main")
    assert resolve("hf://org/tiny@main", HERE).digest == f"hf:{OLD}"
    with pytest.raises(StorageError, match=r"Hub cannot be reached \(.*hf download org/other --revision main"):
        resolve("hf://org/other", HERE)


def test_what_is_not_cached_offline_names_the_cache_and_the_command_that_fills_it(
    cache: Path, offline: None, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=f"HF_HUB_OFFLINE is set, and the cache {cache} lacks this revision"):
        resolve("hf://org/tiny@v1", HERE)
    source = resolve(f"hf://org/tiny@{OLD}", HERE)
    assert source.digest == f"hf:{OLD}"
    with pytest.raises(UserError, match=f"hf download org/tiny --revision {OLD}"):
        open_source(source, tmp_path)


def test_a_commit_stands_for_itself_where_nobody_can_be_asked() -> None:
    assert resolve(f"hf://org/tiny@{NEW}", HERE).digest == f"hf:{NEW}"


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("hf://org/none", "no such model, or it is private: then log in"),
        ("hf://org/tiny@v2", "org/tiny has no branch, tag or commit v2"),
        (f"hf://org/tiny@{'c' * 40}", f"org/tiny has no branch, tag or commit {'c' * 40}"),
    ],
)
def test_what_the_hub_does_not_have_is_told_when_the_plan_is_made(
    hub: dict[str, Repository], uri: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        resolve(uri, HERE)


def test_a_model_on_request_says_where_to_ask_and_to_log_in(hub: dict[str, Repository]) -> None:
    hub["org/tiny"].gated = True
    with pytest.raises(
        UserError, match=r"asked for on http://127.0.0.1:\d+/org/tiny; once granted, log in with `hf auth"
    ):
        resolve("hf://org/tiny", HERE)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"config.json": b"{}", "pytorch_model.bin": b"p"}, "holds no model.safetensors .* only pytorch_model.bin"),
        ({"model.safetensors": b"t"}, "holds no config.json"),
    ],
)
def test_a_repository_that_holds_no_loadable_model_is_refused_when_the_plan_is_made(
    hub: dict[str, Repository], files: dict[str, bytes], message: str
) -> None:
    hub["org/tiny"].commits[NEW] = files
    with pytest.raises(UserError, match=message):
        resolve("hf://org/tiny", HERE)


def index(*shards: str) -> bytes:
    return json.dumps({"weight_map": {f"layer.{number}": shard for number, shard in enumerate(shards)}}).encode()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"config.json": b"{}"}, "lacks model.safetensors"),
        (
            {
                "config.json": b"{}",
                "model-1.safetensors": b"1",
                "model.safetensors.index.json": index(
                    "model-1.safetensors", "model-2.safetensors", "model-3.safetensors"
                ),
            },
            "lacks model-2.safetensors, model-3.safetensors;",
        ),
    ],
)
def test_a_snapshot_that_was_fetched_in_part_names_what_it_lacks(
    cache: Path, offline: None, tmp_path: Path, files: dict[str, bytes], message: str
) -> None:
    write_cache(cache, "org/tiny", OLD, files)
    with pytest.raises(StorageError, match=message):
        open_source(SourceRef(uri="hf://org/tiny", digest=f"hf:{OLD}"), tmp_path)


def test_an_index_that_is_none_is_named(cache: Path, offline: None, tmp_path: Path) -> None:
    write_cache(cache, "org/tiny", OLD, {"config.json": b"{}", "model.safetensors.index.json": b"[]"})
    with pytest.raises(UserError, match=r"model.safetensors.index.json is no index of tensors"):
        open_source(SourceRef(uri="hf://org/tiny", digest=f"hf:{OLD}"), tmp_path)


def test_a_cache_that_cannot_be_written_is_named(hub: dict[str, Repository], cache: Path, tmp_path: Path) -> None:
    source = resolve("hf://org/tiny", HERE)
    (cache / "models--org--tiny" / "blobs").write_text("a file where a folder is needed")
    with pytest.raises(StorageError, match=f"cannot write {cache}: "):
        open_source(source, tmp_path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_damaged_file_is_named_by_the_place_to_delete_it_from(
    cache: Path, offline: None, tmp_path: Path, name: str
) -> None:
    snapshot = write_cache(cache, "org/tiny", OLD, FILES)
    blob = (snapshot / name).resolve()
    blob.write_bytes(blob.read_bytes()[:-1])
    with pytest.raises(StorageError, match=f"damaged in the cache: {blob}; delete these"):
        open_source(SourceRef(uri="hf://org/tiny", digest=f"hf:{OLD}"), tmp_path)


@pytest.mark.parametrize(
    "uri",
    [
        "hf://tiny",
        "hf://org/tiny@",
        "hf://org/tiny/file.gguf",
        "hf://org/tiny#main",
        "hf://../tiny",
        "hf://org/ti--ny",
        "hf://org/tiny.",
        "hf://org/tiny@../../other",
    ],
)
def test_a_wrong_form_is_refused_before_anybody_is_asked(uri: str) -> None:
    with pytest.raises(UserError, match="expected hf://org/name@revision"):
        check(uri)
