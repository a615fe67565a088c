"""Models of the Hugging Face Hub, by commit: `hf://org/name@revision`, in the cache that all of its tools share."""

import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from stages.contract import SourceRef
from stages.errors import UserError
from stages.sources.hf_hub import PART, UnreachableError, Wanted, current_commit, fetch, published_files
from stages.sources.hf_snapshot import FILES, check_names, check_snapshot

FORM = re.compile(rf"hf://(?![^@]*--)(?!.*\.\.)(?P<repo>{PART}/{PART})(@(?P<revision>[^@#?\s]+))?", flags=re.ASCII)


def _parse(uri: str) -> Wanted:
    match = FORM.fullmatch(uri)
    if match is None:
        raise UserError(
            f"source '{uri}': expected hf://org/name@revision, where the revision is a branch, a tag or the 40 digits "
            "of a commit, or hf://org/name for its main branch"
        )
    return Wanted(uri, match["repo"], match["revision"] or "main")


class HubModels:
    """Resolves `hf://`; the environment variables of the Hub's own tools (`HF_HOME`, `HF_TOKEN`, …) hold here too."""

    def check(self, uri: str) -> None:
        """Raises `UserError` when the form is wrong."""
        _parse(uri)

    def digest(self, uri: str) -> str:
        """The commit that the revision stands for now, as `hf:commit`.

        Where the Hub cannot be asked, a commit stands for itself, and a branch or tag for what the cache knows it as.

        Raises:
            UserError: there is no such model or revision, no access to it, or no safetensors in it.
            StorageError: the Hub cannot be reached, and the cache does not know the branch or tag.
        """
        wanted = _parse(uri)
        commit = current_commit(wanted)
        with suppress(UnreachableError):
            check_names(uri, published_files(replace(wanted, revision=commit)))
        return f"hf:{commit}"

    def open(self, source: SourceRef, cache: Path) -> Path:
        """The commit's folder in the Hub's cache, with the files of a model that it lacked fetched and all checked.

        Raises:
            UserError: the commit is gone, access to it is not granted, or it is no model with safetensors.
            StorageError: the Hub cannot be reached while files are lacking, or a cached file is damaged.
        """
        wanted = replace(_parse(source.uri), revision=source.digest.removeprefix("hf:"))
        folder = fetch(wanted, FILES)
        check_snapshot(source.uri, folder)
        return folder
