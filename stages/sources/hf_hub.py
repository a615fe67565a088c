"""The Hugging Face Hub: repositories by commit, its answers as errors that say what to do, and its silence."""

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stages.errors import StorageError, TemperError, UserError
from stages.store.io_errors import io_errors

PART = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?"
LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"
REQUEST_SECONDS = 10.0
SERVER_FAULT = 500


@dataclass(frozen=True)
class Wanted:
    """A repository as a URI names it.

    Attributes:
        uri: the URI.
        repo: its organisation and name.
        revision: a branch, a tag or a commit.
        kind: what it holds.
    """

    uri: str
    repo: str
    revision: str
    kind: Literal["model", "dataset"] = "model"


class UnreachableError(Exception):
    """Nobody answers for the Hub; the cause says why."""


@contextmanager
def hub_errors(wanted: Wanted) -> Generator[None]:
    """Turns the Hub's answers into errors that say what to do, and its silence into `UnreachableError`."""
    # The client takes half a second to load: only pipelines with such a source need it.
    import httpx2
    from huggingface_hub import constants, errors

    try:
        yield
    except errors.GatedRepoError as error:
        page = f"{constants.ENDPOINT}/{_prefix(wanted)}{wanted.repo}"
        raise UserError(f"source {wanted.uri}: access must be asked for on {page}; once granted, {LOG_IN}") from error
    except errors.RepositoryNotFoundError as error:
        what = f"there is no such {wanted.kind}, or it is private"
        raise UserError(f"source {wanted.uri}: {what}: then {LOG_IN}") from error
    except errors.RevisionNotFoundError as error:
        raise UserError(f"source {wanted.uri}: {wanted.repo} has no branch, tag or commit {wanted.revision}") from error
    except (errors.LocalEntryNotFoundError, errors.RevisionResolutionError) as error:
        raise UnreachableError from error.__cause__ or error
    except (errors.OfflineModeIsEnabled, httpx2.TransportError) as error:
        raise UnreachableError from error
    except errors.HfHubHTTPError as error:
        if error.response.status_code >= SERVER_FAULT:
            raise UnreachableError from error
        raise UserError(f"source {wanted.uri}: the Hub refuses: {_line(error)}") from error


def _prefix(wanted: Wanted) -> str:
    return "" if wanted.kind == "model" else f"{wanted.kind}s/"


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())


def not_cached(wanted: Wanted, unreachable: UnreachableError) -> TemperError:
    """What to do where the Hub does not answer and the cache lacks something."""
    from huggingface_hub import constants

    more = "" if wanted.kind == "model" else f" --repo-type {wanted.kind}"
    what_to_do = (
        f"and the cache {constants.HF_HUB_CACHE} lacks this revision or files of it; where there is a network, run: "
        f"hf download {wanted.repo}{more} --revision {wanted.revision}"
    )
    if constants.is_offline_mode():
        return UserError(f"source {wanted.uri}: HF_HUB_OFFLINE is set, {what_to_do}")
    cause = _line(unreachable.__cause__ or unreachable)
    return StorageError(f"source {wanted.uri}: the Hub cannot be reached ({cause}), {what_to_do}")


def current_commit(wanted: Wanted) -> str:
    """What the revision is now or, where the Hub cannot be asked, when the cache last heard of it."""
    from huggingface_hub import HfApi, constants

    offline = constants.is_offline_mode()
    try:
        with hub_errors(wanted):
            api, repo, kind = HfApi(), wanted.repo, wanted.kind
            found = api.resolve_revision(repo, revision=wanted.revision, repo_type=kind, local_files_only=offline)
            return found.resolved
    except UnreachableError as unreachable:
        raise not_cached(wanted, unreachable) from unreachable


def published_files(wanted: Wanted) -> set[str]:
    """Names of the files at the revision.

    Raises:
        UserError: there is no such repository or revision, or no access to it.
        UnreachableError: the Hub cannot be asked.
    """
    from huggingface_hub import HfApi

    api = HfApi()
    with hub_errors(wanted):
        ask = api.model_info if wanted.kind == "model" else api.dataset_info
        info = ask(wanted.repo, revision=wanted.revision, timeout=REQUEST_SECONDS)
        if info.gated:
            api.auth_check(wanted.repo, repo_type=wanted.kind)
    return {sibling.rfilename for sibling in info.siblings or ()}


def fetch(wanted: Wanted, patterns: Sequence[str]) -> Path:
    """The folder of a commit in the Hub's cache, with the files of these patterns that it lacked fetched.

    Raises:
        UserError: the commit is gone, or access to it is not granted.
        StorageError: the Hub cannot be reached while files are lacking.
    """
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.utils import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        with io_errors("write", Path(constants.HF_HUB_CACHE)), hub_errors(wanted):
            return Path(
                snapshot_download(
                    wanted.repo, repo_type=wanted.kind, revision=wanted.revision, allow_patterns=list(patterns)
                )
            )
    except UnreachableError as unreachable:
        raise not_cached(wanted, unreachable) from unreachable
