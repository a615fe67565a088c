"""The files of rows in a folder, and which of its splits each belongs to."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from stages.engine.data.raw.compressed import kind_of_file
from stages.engine.data.raw.file import KNOWN, holds_rows
from stages.errors import UserError
from stages.store.io_errors import io_errors

SPLITS_FILE, STATE_FILE = "dataset_dict.json", "state.json"
"""What `save_to_disk` of Hugging Face's datasets writes: of several splits, and of one."""
_ABOUT = (SPLITS_FILE, STATE_FILE, "dataset_info.json", "dataset_infos.json")
_SHARD = re.compile(r"(?P<split>\w+(\.\w+)*)-(?P<number>\d{5})-of-(?P<total>\d{5})")
_WORDS: Mapping[str, str] = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
    "eval": "test",
    "evaluation": "test",
}
"""What a file's or folder's name says about its split."""


def find_files(path: Path, split: str | None) -> Sequence[Path]:
    """The files of one split, in the order of their names; a file is itself.

    Args:
        path: a file of rows, a folder of such files, as data sets are published, or one of `save_to_disk`.
        split: its name; not needed where there is only one, or no file's name says one.

    Raises:
        UserError: there is no such file, or it is not certain which are meant.
        StorageError: the folder cannot be read.
    """
    if path.is_file():
        if split is not None:
            raise UserError(f"{path}: a file has no splits, so that there is no '{split}'")
        return [path]
    with io_errors("read", path):
        if (path / SPLITS_FILE).is_file():
            return _of_saved(path / _choose(path, sorted(_listed(path / SPLITS_FILE, "splits")), split))
        if (path / STATE_FILE).is_file():
            return _of_saved(path)
        found = sorted(file for file in path.rglob("*") if file.is_file() and _is_data(file, path))
    if not found:
        raise UserError(f"{path}: the folder holds no file of rows; known are {KNOWN}")
    return _of_published(path, found, split)


def _is_data(file: Path, folder: Path) -> bool:
    hidden = any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)
    return holds_rows(file) and file.name not in _ABOUT and not hidden


def _of_saved(folder: Path) -> Sequence[Path]:
    return [folder / name for name in _listed(folder / STATE_FILE, "_data_files")]


def _listed(file: Path, name: str) -> list[str]:
    try:
        listed = json.loads(file.read_bytes())[name]
        return [str(one["filename"]) if isinstance(one, dict) else str(one) for one in listed]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file}: expected a list `{name}` as `save_to_disk` writes it: {error!r}") from error


def _of_published(folder: Path, found: Sequence[Path], split: str | None) -> Sequence[Path]:
    splits = {file: _split_of(file, folder) for file in found}
    chosen = found
    if named := sorted(set(splits.values()) - {""}):
        wanted = _choose(folder, named, split)
        chosen = [file for file in found if splits[file] == wanted]
    elif split is not None:
        raise UserError(f"{folder}: no file's name says of which split it is, so that there is no '{split}'")
    for what, ways in (("kind", {kind_of_file(file) for file in chosen}), ("folder", _places(chosen, folder))):
        if len(ways) > 1:
            raise UserError(
                f"{folder}: it holds files of more than one {what}: {', '.join(sorted(ways))}; name the file or folder "
                "that is meant in the source"
            )
    _check_shards(folder, chosen)
    return chosen


def _check_shards(folder: Path, files: Sequence[Path]) -> None:
    """A folder that was fetched in part would otherwise pass for a smaller data set."""
    shards = [match for match in (_SHARD.match(file.name) for file in files) if match is not None]
    missing = {int(shard["total"]) for shard in shards} - {len(shards)}
    if missing:
        raise UserError(f"{folder}: of its {max(missing)} files only {len(shards)} are there; fetch the others")


def _choose(folder: Path, splits: Sequence[str], split: str | None) -> str:
    if split is None and len(splits) == 1:
        return splits[0]
    wanted = split or ""
    wanted = wanted if wanted in splits else _WORDS.get(wanted, "")
    if wanted not in splits:
        told = "say which by `split`" if split is None else f"there is no '{split}'"
        raise UserError(f"{folder}: its splits are {', '.join(splits)}; {told}")
    return wanted


def _split_of(file: Path, folder: Path) -> str:
    """Empty where no name says it."""
    stem = file.name[: file.name.index(".")]
    shard = _SHARD.fullmatch(stem)
    if shard is not None:
        return _WORDS.get(shard["split"], shard["split"])
    for name in (stem, *reversed(file.relative_to(folder).parts[:-1])):
        words = [_WORDS[word] for word in re.split(r"[^a-z]+", name.lower()) if word in _WORDS]
        if words:
            return words[0]
    return ""


def _places(files: Sequence[Path], folder: Path) -> set[str]:
    """Folders that files lie in, those that are named after a split apart."""
    parts = ([part for part in file.relative_to(folder).parts[:-1] if part not in _WORDS] for file in files)
    return {"/".join(part) or "." for part in parts}
