"""Models of the Hugging Face Hub, by commit: `hf://org/name@revision`, in the cache that all of its tools share."""

import re
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from stages.contract import SourceRef
from stages.errors import StorageError, TemperError, UserError
from stages.sources.hf_snapshot import FILES, check_names, check_snapshot
from stages.store.io_errors import io_errors

PART = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?"
FORM = re.compile(rf"hf://(?![^@]*--)(?!.*\.\.)(?P<repo>{PART}/{PART})(@(?P<revision>[^@#?\s]+))?", flags=re.ASCII)
LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"
REQUEST_SECONDS = 10.0
SERVER_FAULT = 500


@dataclass(frozen=True)
class _Wanted:
    uri: str
    repo: str
    revision: str
    """A branch, a tag or a commit."""


class _UnreachableError(Exception):
    """Nobody answers for the Hub; the cause says why."""


def _parse(uri: str) -> _Wanted:
    match = FORM.fullmatch(uri)
    if match is None:
        raise UserError(
            f"source '{uri}': expected hf://org/name@revision, where the revision is a branch, a tag or the 40 digits "
            "of a commit, or hf://org/name for its main branch"
        )
    return _Wanted(uri, match["repo"], match["revision"] or "main")


@contextmanager
def _hub_errors(wanted: _Wanted) -> Generator[None]:
    """Turns the Hub's answers into errors that say what to do, and its silence into `_UnreachableError`."""
    # The client takes half a second to load: only pipelines with such a source need it.
    import httpx2
    from huggingface_hub import constants, errors

    try:
        yield
    except errors.GatedRepoError as error:
        page = f"{constants.ENDPOINT}/{wanted.repo}"
        raise UserError(f"source {wanted.uri}: access must be asked for on {page}; once granted, {LOG_IN}") from error
    except errors.RepositoryNotFoundError as error:
        raise UserError(f"source {wanted.uri}: there is no such model, or it is private: then {LOG_IN}") from error
    except errors.RevisionNotFoundError as error:
        raise UserError(f"source {wanted.uri}: {wanted.repo} has no branch, tag or commit {wanted.revision}") from error
    except (errors.LocalEntryNotFoundError, errors.RevisionResolutionError) as error:
        raise _UnreachableError from error.__cause__ or error
    except (errors.OfflineModeIsEnabled, httpx2.TransportError) as error:
        raise _UnreachableError from error
    except errors.HfHubHTTPError as error:
        if error.response.status_code >= SERVER_FAULT:
            raise _UnreachableError from error
        raise UserError(f"source {wanted.uri}: the Hub refuses: {_line(error)}") from error


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _not_cached(wanted: _Wanted, unreachable: _UnreachableError) -> TemperError:
    from huggingface_hub import constants

    what_to_do = (
        f"and the cache {constants.HF_HUB_CACHE} lacks this revision or files of it; where there is a network, run: "
        f"hf download {wanted.repo} --revision {wanted.revision}"
    )
    if constants.is_offline_mode():
        return UserError(f"source {wanted.uri}: HF_HUB_OFFLINE is set, {what_to_do}")
    cause = _line(unreachable.__cause__ or unreachable)
    return StorageError(f"source {wanted.uri}: the Hub cannot be reached ({cause}), {what_to_do}")


def _commit(wanted: _Wanted) -> str:
    """What the revision is now or, where the Hub cannot be asked, when the cache last heard of it."""
    from huggingface_hub import HfApi, constants

    offline = constants.is_offline_mode()
    try:
        with _hub_errors(wanted):
            return HfApi().resolve_revision(wanted.repo, revision=wanted.revision, local_files_only=offline).resolved
    except _UnreachableError as unreachable:
        raise _not_cached(wanted, unreachable) from unreachable


def _check_published(wanted: _Wanted) -> None:
    """Refuses what cannot be had or loaded, before any stage of the pipeline runs."""
    from huggingface_hub import HfApi

    api = HfApi()
    with _hub_errors(wanted):
        info = api.model_info(wanted.repo, revision=wanted.revision, timeout=REQUEST_SECONDS)
        if info.gated:
            api.auth_check(wanted.repo)
    check_names(wanted.uri, {sibling.rfilename for sibling in info.siblings or ()})


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
        commit = _commit(wanted)
        with suppress(_UnreachableError):
            _check_published(replace(wanted, revision=commit))
        return f"hf:{commit}"

    def open(self, source: SourceRef, cache: Path) -> Path:
        """The commit's folder in the Hub's cache, with the files of a model that it lacked fetched and all checked.

        Raises:
            UserError: the commit is gone, access to it is not granted, or it is no model with safetensors.
            StorageError: the Hub cannot be reached while files are lacking, or a cached file is damaged.
        """
        from huggingface_hub import constants, snapshot_download
        from huggingface_hub.utils import disable_progress_bars

        wanted = replace(_parse(source.uri), revision=source.digest.removeprefix("hf:"))
        if not sys.stderr.isatty():
            disable_progress_bars()
        try:
            with io_errors("write", Path(constants.HF_HUB_CACHE)), _hub_errors(wanted):
                folder = Path(snapshot_download(wanted.repo, revision=wanted.revision, allow_patterns=list(FILES)))
        except _UnreachableError as unreachable:
            raise _not_cached(wanted, unreachable) from unreachable
        check_snapshot(source.uri, folder)
        return folder
