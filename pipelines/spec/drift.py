"""Drift: the source of a stage is not what it was when a result was committed, although its version is the same."""

from stages.source_digest import source_files
from stages.store.manifest import Manifest


def drift_since(manifest: Manifest) -> str:
    """What changed, for people; empty when nothing did, or when the commit recorded no source."""
    before = manifest.provenance.source_files
    now = source_files(manifest.stage) if before else {}
    if before == now:
        return ""
    changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    what = _named(changed, manifest.stage)
    return f"{what} changed since version={manifest.version} committed this (bump version to separate)"


def _named(changed: list[str], kind: str) -> str:
    """The stage's own folder before others; further files as a count."""
    own = f"stages/{kind}/"
    rest = [name for name in changed if not name.startswith(own)]
    first = own if len(rest) < len(changed) else rest.pop(0)
    if not rest:
        return first
    return f"{first} and {len(rest)} more {'file' if len(rest) == 1 else 'files'}"
