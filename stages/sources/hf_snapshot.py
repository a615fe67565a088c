"""A model's folder in the cache of the Hugging Face Hub: which files belong to it, and whether they are whole."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from stages.errors import StorageError, UserError
from stages.sources.remembered import file_sha256
from stages.store.io_errors import io_errors

CONFIG, SINGLE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
FILES = (
    CONFIG,
    "generation_config.json",
    "model*.safetensors",
    INDEX,
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "chat_template*",
)
"""Patterns of the files that a model is read from; the same weights in other formats are left where they are."""

GIT_DIGITS, SHA256_DIGITS = 40, 64


def check_names(uri: str, names: set[str]) -> None:
    """Raises `UserError` when files of these names are no model that can be loaded."""
    if CONFIG not in names:
        raise UserError(f"source {uri}: it holds no {CONFIG}, so it is no model that can be loaded")
    if not names & {SINGLE, INDEX}:
        others = sorted(name for name in names if name.endswith((".bin", ".safetensors", ".gguf", ".pth")))
        found = f", only {', '.join(others[:3])}" if others else ""
        raise UserError(
            f"source {uri}: it holds no {SINGLE} or {INDEX}{found}; name a revision or a repository with safetensors"
        )


def check_snapshot(uri: str, folder: Path) -> None:
    """Checks that a snapshot has all files of a model, and that each holds what its blob is named by.

    Raises:
        UserError: the index of its shards cannot be read.
        StorageError: files are missing or damaged; all are named.
    """
    with io_errors("read", folder):
        files = {path.name: path for path in folder.iterdir() if path.is_file()}
        missing = sorted(({CONFIG} | _weight_files(uri, files)) - set(files))
    if missing:
        raise StorageError(
            f"source {uri}: {folder} lacks {', '.join(missing)}; where there is a network, run again without "
            "HF_HUB_OFFLINE, and choose another model when this one is not published as safetensors"
        )
    check_whole(uri, files.values())


def check_whole(uri: str, files: Iterable[Path]) -> None:
    """Checks that each file holds what its blob is named by.

    Raises:
        StorageError: files are damaged; all are named.
    """
    damaged: list[str] = []
    for path in files:
        with io_errors("read", path):
            damaged += [] if _is_whole(path) else [str(path.resolve())]
    if damaged:
        told = ", ".join(sorted(damaged))
        raise StorageError(f"source {uri}: damaged in the cache: {told}; delete these and run again")


def _weight_files(uri: str, files: dict[str, Path]) -> set[str]:
    """The one file of a model's tensors, or those that its index names."""
    if SINGLE in files or INDEX not in files:
        return {SINGLE}
    try:
        return {str(name) for name in json.loads(files[INDEX].read_bytes())["weight_map"].values()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"source {uri}: {files[INDEX]} is no index of tensors: {error!r}") from error


def _is_whole(path: Path) -> bool:
    """Whether a file's content is the one that it was stored under: git's own digest, or sha256 for large files."""
    blob = path.resolve()
    if blob.parent.name != "blobs":
        return True
    if len(blob.name) == SHA256_DIGITS:
        return file_sha256(blob) == blob.name
    if len(blob.name) == GIT_DIGITS:
        content = blob.read_bytes()
        header = f"blob {len(content)}\0".encode()
        return hashlib.sha1(header + content, usedforsecurity=False).hexdigest() == blob.name
    return True
