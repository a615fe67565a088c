"""The Hugging Face Hub: repositories by commit, its answers as errors that say what to do, and its silence."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from stages.errors import StorageError, TemperError, UserError

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
