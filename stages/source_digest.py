"""What the source of a stage kind is now: digests of every file that its `run` imports from here, without importing it.

Recorded with each commit, so that a plan can tell when code has changed under an unchanged version.
"""

import functools
import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from stages.catalog import STAGES

ROOT = Path(__file__).parents[1]
DIGITS = 12
"""Of a file's sha256, in hexadecimal; to tell versions apart, not to guard against anybody."""

# Parsing a hundred files takes longer than planning; every import of this package has one of these two forms.
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(stages[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]*)|import[ \t]+(stages[\w.]*))", re.MULTILINE
)
_NAME = re.compile(r"(\w+)(?:\s+as\s+\w+)?")


def source_files(kind: str) -> Mapping[str, str]:
    """Digests of the files that a kind's `run` is made of, by path from the top of the repository."""
    files: dict[str, str] = {}
    waiting = [STAGES[kind].module]
    while waiting:
        path = _file_of(waiting.pop())
        if path is None or (name := path.relative_to(ROOT).as_posix()) in files:
            continue
        stat = path.stat()
        files[name], imported = _look_at(path, stat.st_mtime_ns, stat.st_size)
        waiting.extend(imported)
    return dict(sorted(files.items()))


def source_digest(files: Mapping[str, str]) -> str:
    """One digest of all these files; empty when there are none, as for a stage from elsewhere."""
    content = "\n".join(f"{name} {digest}" for name, digest in sorted(files.items()))
    return hashlib.sha256(content.encode()).hexdigest() if files else ""


@functools.cache
def _look_at(path: Path, _mtime_ns: int, _size: int) -> tuple[str, tuple[str, ...]]:
    """Digest and imports of a file as it is at that time."""
    content = path.read_bytes()
    return hashlib.sha256(content).hexdigest()[:DIGITS], tuple(_imported(content.decode()))


def _imported(text: str) -> Iterator[str]:
    """Modules of this package that a file imports; a name that it takes from a module may be one too."""
    for module, names, plain in _IMPORT.findall(text):
        yield plain or module
        for found in _NAME.finditer(names):
            yield f"{module}.{found[1]}"


def _file_of(module: str) -> Path | None:
    """The file of a module; packages are left out, for their `__init__.py` holds nothing."""
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    return path if path.is_file() else None
