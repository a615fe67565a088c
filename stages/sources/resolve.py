"""External inputs by URI: one table from scheme to resolver."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from stages.contract import SourceRef
from stages.errors import UserError
from stages.sources.files import LocalFiles, absolute_path
from stages.sources.gcs import BucketObjects
from stages.sources.hf import HubModels
from stages.sources.hf_datasets import PREFIX, HubDatasets
from stages.sources.packages import PackageFiles
from stages.sources.reasoning_gym import GeneratedProblems
from stages.sources.recipes import Recipes, parse


class Resolver(Protocol):
    """What one scheme can do."""

    def check(self, uri: str) -> None:
        """Raises `UserError` when the URI's form is wrong; touches nothing."""
        ...

    def digest(self, uri: str) -> str:
        """The digest of the content; a path is absolute."""
        ...

    def open(self, source: SourceRef, cache: Path) -> Path:
        """A local path whose content has the source's digest; may put a copy into the folder `cache`."""
        ...


SCHEMES: Mapping[str, Resolver] = {
    "": LocalFiles(),
    "package": PackageFiles(),
    "hf": HubModels(),
    "gs": BucketObjects(),
    "reasoning_gym": GeneratedProblems(),
}


RECIPES: Resolver = Recipes()
DATASETS: Resolver = HubDatasets()


def _resolver(uri: str) -> Resolver:
    if parse(uri) is not None:
        return RECIPES
    if uri.startswith(PREFIX):
        return DATASETS
    scheme = uri.partition("://")[0] if "://" in uri else ""
    if scheme not in SCHEMES:
        known = [name for name in SCHEMES if name]
        near = difflib.get_close_matches(scheme, known, n=1)
        hint = f" (did you mean {near[0]}://?)" if near else ""
        names = ", ".join(f"{name}://" for name in known)
        raise UserError(f"source '{uri}': unknown scheme '{scheme}', expected a path or one of {names}{hint}")
    return SCHEMES[scheme]


def check(uri: str) -> None:
    """Raises `UserError` when the URI's form is wrong; touches neither disk nor network."""
    _resolver(uri).check(uri)


def absolute(uri: str, base: Path) -> str:
    """The URI with the same meaning in every folder, given the folder that it is relative to.

    Raises:
        UserError: the form is wrong.
    """
    check(uri)
    return uri if "://" in uri else absolute_path(uri, base)


def resolve(uri: str, base: Path) -> SourceRef:
    """The source with an absolute URI and the digest of its content; a relative path is seen from the folder `base`.

    Raises:
        UserError: the form is wrong, or there is no such thing.
        StorageError: it cannot be read.
    """
    found = absolute(uri, base)
    return SourceRef(uri=found, digest=_resolver(uri).digest(found))


def digest(uri: str, base: Path) -> str:
    """The digest of `resolve`."""
    return resolve(uri, base).digest


def open_source(source: SourceRef, cache: Path) -> Path:
    """A local file or folder whose content has the source's digest.

    Raises:
        UserError: the content is another one, or the source has no file.
        StorageError: it cannot be read.
    """
    check(source.uri)
    return _resolver(source.uri).open(source, cache)
