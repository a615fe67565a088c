"""Files of rows in folders, as data sets are published and saved."""

import json
from pathlib import Path

import pytest

from stages.engine.data.raw.folder import find_files
from stages.errors import UserError


def make(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def found(folder: Path, split: str | None = None) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in find_files(folder, split)]


SHARDS = ("data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet", "data/test-00000-of-00001.parquet")


def test_shards_of_a_split_come_in_order(tmp_path: Path) -> None:
    make(tmp_path, *reversed(SHARDS), "README.md", "dataset_infos.json", ".git/x.jsonl")
    assert found(tmp_path, "train") == list(SHARDS[:2])
    assert found(tmp_path, "test") == ["data/test-00000-of-00001.parquet"]


@pytest.mark.parametrize(
    ("names", "split", "chosen"),
    [
        (("train.jsonl", "val.jsonl"), "validation", "val.jsonl"),
        (("train.jsonl", "val.jsonl"), "val", "val.jsonl"),
        (("my_train_v2.jsonl.gz", "dev.jsonl.gz"), "train", "my_train_v2.jsonl.gz"),
        (("train/a.csv", "test/a.csv"), "test", "test/a.csv"),
        (("train_sft-00000-of-00001.parquet", "test_sft-00000-of-00001.parquet"), "train_sft", None),
        (("only.jsonl",), None, "only.jsonl"),
        (("train.jsonl",), None, "train.jsonl"),
    ],
)
def test_names_of_files_and_folders_tell_the_split(
    tmp_path: Path, names: tuple[str, ...], split: str | None, chosen: str | None
) -> None:
    make(tmp_path, *names)
    assert found(tmp_path, split) == [chosen or names[0]]


@pytest.mark.parametrize(
    ("names", "split", "message"),
    [
        (("train.jsonl", "test.jsonl"), None, "its splits are test, train; say which by `split`"),
        (("train.jsonl", "test.jsonl"), "dev", "its splits are test, train; there is no 'dev'"),
        (("rows.jsonl",), "train", "no file's name says of which split it is, so that there is no 'train'"),
        (("a.jsonl", "b.parquet"), None, r"files of more than one kind: \.jsonl, \.parquet; name the file"),
        (("easy/train.jsonl", "hard/train.jsonl"), "train", "files of more than one folder: easy, hard; name"),
        (SHARDS[:1], "train", "of its 2 files only 1 are there; fetch the others"),
        (("README.md",), None, "holds no file of rows; known are"),
    ],
)
def test_what_is_not_certain_is_asked(tmp_path: Path, names: tuple[str, ...], split: str | None, message: str) -> None:
    make(tmp_path, *names)
    with pytest.raises(UserError, match=message):
        find_files(tmp_path, split)


def test_a_saved_data_set_says_itself_which_files_it_has(tmp_path: Path) -> None:
    for split in ("train", "test"):
        make(tmp_path, f"{split}/data-00000-of-00001.arrow", f"{split}/cache-1.arrow", f"{split}/dataset_info.json")
        state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}
        (tmp_path / split / "state.json").write_text(json.dumps(state))
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert found(tmp_path, "test") == ["test/data-00000-of-00001.arrow"]
    assert found(tmp_path / "train") == ["data-00000-of-00001.arrow"]
    with pytest.raises(UserError, match="its splits are test, train; say which"):
        find_files(tmp_path, None)
    (tmp_path / "train" / "state.json").write_text("{}")
    with pytest.raises(UserError, match=r"state\.json: expected a list `_data_files`"):
        find_files(tmp_path, "train")


def test_a_file_is_itself_and_has_no_splits(tmp_path: Path) -> None:
    make(tmp_path, "train.jsonl")
    assert find_files(tmp_path / "train.jsonl", None) == [tmp_path / "train.jsonl"]
    with pytest.raises(UserError, match="a file has no splits, so that there is no 'train'"):
        find_files(tmp_path / "train.jsonl", "train")
