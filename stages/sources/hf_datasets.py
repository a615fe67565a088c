"""Data sets of the Hugging Face Hub, by commit: `hf://datasets/org/name@revision`, or a folder or file of one."""

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from stages.contract import SourceRef
from stages.errors import UserError
from stages.sources.hf_hub import PART, UnreachableError, Wanted, current_commit, fetch, published_files
from stages.sources.hf_snapshot import check_whole

PREFIX = "hf://datasets/"
FORM = re.compile(
    rf"{PREFIX}(?!.*\.\.)(?P<repo>{PART}/{PART})(@(?P<revision>[^@#?\s/]+))?(/(?P<path>[^@#?\s]+))?", flags=re.ASCII
)
ROWS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".arrow")
"""Ends of the names of files of rows; those of text may be packed."""
PACKED = ("", ".gz", ".zst")


@dataclass(frozen=True)
class _Part:
    """A repository and the folder or file of it that is meant; empty for all."""

    wanted: Wanted
    path: str

    def holds(self, name: str) -> bool:
        """Whether a file of the repository is meant, and holds rows."""
        inside = not self.path or name == self.path or name.startswith(f"{self.path}/")
        return inside and name.endswith(tuple(kind + packed for kind in ROWS for packed in PACKED))

    def patterns(self) -> list[str]:
        """Of the files to fetch."""
        folder = f"{self.path}/" if self.path else ""
        own = [self.path] if self.path else []
        return [*own, *(f"{folder}*{kind}{packed}" for kind in ROWS for packed in PACKED)]


def _parse(uri: str) -> _Part:
    match = FORM.fullmatch(uri)
    if match is None:
        raise UserError(
            f"source '{uri}': expected hf://datasets/org/name@revision, with a branch, a tag or the 40 "
            "digits of a commit, or hf://datasets/org/name for its main branch; a folder or file of it may follow"
        )
    return _Part(Wanted(uri, match["repo"], match["revision"] or "main", "dataset"), (match["path"] or "").strip("/"))


class HubDatasets:
    """Resolves `hf://datasets/`; the environment variables of the Hub's own tools hold here too."""

    def check(self, uri: str) -> None:
        """Raises `UserError` when the form is wrong."""
        _parse(uri)

    def digest(self, uri: str) -> str:
        """The commit that the revision stands for now and the part that is meant, as `hf:commit/path`.

        Where the Hub cannot be asked, a commit stands for itself, and a branch or tag for what the cache knows it as.

        Raises:
            UserError: there is no such data set or revision, no access to it, or no file of rows in it.
            StorageError: the Hub cannot be reached, and the cache does not know the branch or tag.
        """
        part = _parse(uri)
        commit = current_commit(part.wanted)
        with suppress(UnreachableError):
            _check_published(replace(part, wanted=replace(part.wanted, revision=commit)))
        return f"hf:{commit}/{part.path}".rstrip("/")

    def open(self, source: SourceRef, cache: Path) -> Path:
        """The commit's folder in the Hub's cache, or the part of it, with files that it lacked fetched and all checked.

        Raises:
            UserError: the commit is gone, access to it is not granted, or there is no such part.
            StorageError: the Hub cannot be reached while files are lacking, or a cached file is damaged.
        """
        part = _parse(source.uri)
        wanted = replace(part.wanted, revision=source.digest.removeprefix("hf:").partition("/")[0])
        fetched = fetch(wanted, part.patterns())
        found = fetched / part.path
        if not found.exists():
            raise UserError(f"source {source.uri}: {fetched} holds no {part.path}")
        check_whole(source.uri, [found] if found.is_file() else [one for one in found.rglob("*") if one.is_file()])
        return found


def _check_published(part: _Part) -> None:
    """Refuses what cannot be had or read, before any stage of the pipeline runs."""
    wanted = part.wanted
    if not any(map(part.holds, published_files(wanted))):
        where = f" in {part.path}" if part.path else ""
        raise UserError(f"source {wanted.uri}: it holds no file of rows{where}; known are {', '.join(ROWS)}")
