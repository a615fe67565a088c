"""Files and folders inside installed Python packages: `package://name/path/in/package#sha256=hex`."""

import importlib.util
import re
from pathlib import Path

from stages.contract import SourceRef
from stages.errors import UserError
from stages.sources.files import folder_sha256
from stages.sources.remembered import file_sha256

FORM = re.compile(
    r"package://(?P<name>[A-Za-z_]\w*)/(?P<path>[^#?\\]+)#sha256=(?P<sha256>[0-9a-f]{8,64})", flags=re.ASCII
)


def _parse(uri: str) -> re.Match[str]:
    match = FORM.fullmatch(uri)
    if match is None or any(part in ("", ".", "..") for part in match["path"].split("/")):
        raise UserError(
            f"source '{uri}': expected package://name/path#sha256= and the digest, or at least its first 8 digits"
        )
    return match


def _locate(uri: str) -> Path:
    """The file or folder, found without importing the package."""
    match = _parse(uri)
    try:
        spec = importlib.util.find_spec(match["name"])
    except ValueError:  # of a module that was not imported in the usual way, as `__main__`
        spec = None
    if spec is None or spec.submodule_search_locations is None:
        raise UserError(
            f"source {uri}: the package '{match['name']}' is not installed here; install the distribution that holds "
            f"it, for example: pip install --no-deps {match['name'].replace('_', '-')}"
        )
    candidates = [Path(folder) / match["path"] for folder in spec.submodule_search_locations]
    found = next((candidate for candidate in candidates if candidate.exists()), None)
    if found is None:
        raise UserError(
            f"source {uri}: the installed package '{match['name']}' holds no file or folder {match['path']}; "
            "install the version that does"
        )
    return found


def _verified(uri: str) -> tuple[Path, str]:
    path, expected = _locate(uri), _parse(uri)["sha256"]
    found = folder_sha256(path) if path.is_dir() else file_sha256(path)
    if not found.startswith(expected):
        raise UserError(
            f"source {uri}: {path} has the digest sha256={found}, another version of the package is installed"
        )
    return path, found


class PackageFiles:
    """Resolves `package://`."""

    def check(self, uri: str) -> None:
        """Raises `UserError` when the form is wrong."""
        _parse(uri)

    def digest(self, uri: str) -> str:
        """The whole digest, that of a folder as for a local one.

        Raises:
            UserError: the package or path is not there, or its content is another one than the URI says.
        """
        return f"sha256:{_verified(uri)[1]}"

    def open(self, source: SourceRef, cache: Path) -> Path:
        """The file or folder in the installed package; raises `UserError` as `digest` does."""
        path, found = _verified(source.uri)
        if f"sha256:{found}" != source.digest:
            raise UserError(f"source {source.uri}: the plan was made with the content {source.digest}, here is {found}")
        return path
