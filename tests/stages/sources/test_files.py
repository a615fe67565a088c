import hashlib
import os
from pathlib import Path

import pytest

from stages.errors import UserError
from stages.sources.resolve import absolute, digest, open_source, resolve


def settle(path: Path) -> None:
    """Makes a file old enough to be remembered."""
    os.utime(path, ns=(1_700_000_000_000_000_000, 1_700_000_000_000_000_000))


def test_a_files_digest_is_the_sha256_of_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b"abc")
    # FIPS 180-2, appendix B.1.
    expected = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert digest("rows.jsonl", tmp_path) == expected


def test_a_relative_path_is_seen_from_the_given_folder_and_becomes_absolute(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows").write_bytes(b"abc")
    assert resolve("../data/rows", tmp_path / "pipelines").uri == str(tmp_path / "data" / "rows")


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert absolute("~/models/a", tmp_path) == str(tmp_path / "home/models/a")
    assert absolute("~nobody-of-this-name/a", tmp_path) == str(tmp_path / "~nobody-of-this-name/a")


def test_a_folders_digest_is_that_of_its_sorted_paths_and_file_digests(tmp_path: Path) -> None:
    for name in ("b", "a/c"):
        (tmp_path / "model" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "model" / name).write_text(name)
    by_hand = b"".join(
        name.encode() + b"\0" + hashlib.sha256(name.encode()).hexdigest().encode() + b"\0" for name in ("a/c", "b")
    )
    assert digest("model", tmp_path) == f"sha256:{hashlib.sha256(by_hand).hexdigest()}"


def test_a_folders_digest_changes_with_a_name_and_with_a_byte_but_not_with_its_place(tmp_path: Path) -> None:
    for folder, name, text in (("one", "a", "x"), ("two", "a", "x"), ("three", "b", "x"), ("four", "a", "y")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text)
    one, two, three, four = (digest(folder, tmp_path) for folder in ("one", "two", "three", "four"))
    assert one == two
    assert len({one, three, four}) == 3


def test_a_linked_file_counts_as_the_file_itself_and_a_linked_folder_is_refused(tmp_path: Path) -> None:
    for name in ("blobs", "snapshot", "plain"):
        (tmp_path / name).mkdir()
    for folder in ("blobs", "plain"):
        (tmp_path / folder / "weights").write_bytes(b"abc")
    (tmp_path / "snapshot" / "weights").symlink_to("../blobs/weights")
    source = resolve("snapshot", tmp_path)
    assert source.digest == digest("plain", tmp_path)
    assert (open_source(source, tmp_path) / "weights").read_bytes() == b"abc"
    (tmp_path / "snapshot" / "more").symlink_to("../plain")
    with pytest.raises(UserError, match="more is a link to a folder"):
        digest("snapshot", tmp_path)


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="pipe is neither a file nor a folder"):
        digest(str(tmp_path), tmp_path)
    (tmp_path / "pipe").unlink()
    (tmp_path / "weights").symlink_to("gone")
    with pytest.raises(UserError, match="weights is neither a file nor a folder, or a link to nothing"):
        digest(str(tmp_path), tmp_path)


def test_a_digest_is_remembered_while_inode_size_and_time_stay(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(b"old!")
    settle(file)
    before = digest("weights", tmp_path)
    # The same inode, size and time with other bytes: only a remembered digest can still be the old one.
    with file.open("r+b") as opened:
        opened.write(b"new!")
    settle(file)
    assert digest("weights", tmp_path) == before


@pytest.mark.parametrize("change", ["size", "time", "inode"])
def test_a_changed_file_is_read_again(tmp_path: Path, change: str) -> None:
    file = tmp_path / "weights"
    file.write_bytes(b"old!")
    settle(file)
    before = digest("weights", tmp_path)
    if change == "inode":
        (tmp_path / "other").write_bytes(b"new!")
        (tmp_path / "other").replace(file)
        settle(file)
    else:
        file.write_bytes(b"longer" if change == "size" else b"new!")
    assert digest("weights", tmp_path) != before


def test_a_file_that_was_just_written_is_not_remembered(tmp_path: Path, cache_home: Path) -> None:
    (tmp_path / "young").write_bytes(b"1")
    digest("young", tmp_path)
    assert not list(cache_home.rglob("*.json"))


def test_a_damaged_or_unwritable_cache_only_costs_time(
    tmp_path: Path, cache_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "weights"
    file.write_bytes(b"abc")
    settle(file)
    before = digest("weights", tmp_path)
    (entry,) = cache_home.rglob("*.json")
    entry.write_text("{")
    assert digest("weights", tmp_path) == before
    monkeypatch.setenv("XDG_CACHE_HOME", str(file / "below-a-file"))
    assert digest("weights", tmp_path) == before


def test_a_missing_or_empty_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing: no such file or folder"):
        digest("nothing", tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no file"):
        digest("empty", tmp_path)


def test_open_gives_the_path_while_the_content_is_the_planned_one(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    file.write_text("planned")
    source = resolve("rows", tmp_path)
    assert open_source(source, tmp_path / "cache") == file
    file.write_text("edited since")
    with pytest.raises(UserError, match="changed after the plan was made"):
        open_source(source, tmp_path / "cache")
