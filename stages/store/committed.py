"""The committed results of a kind, newest first: what a plan compares with, and what it estimates from."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from stages.store.conditional import ConditionalStore
from stages.store.layout import StagePaths, kind_folder
from stages.store.manifest import Manifest, read_manifest, read_spec
from stages.store.records import UnreadableRecordError

NEWEST = 50
"""Results that are looked at when nobody says otherwise."""
READS_AT_ONCE = 8


@dataclass(frozen=True)
class CommittedStage:
    """A committed result, and the identity payload that its key is the hash of."""

    manifest: Manifest
    payload: bytes


def list_committed(store: ConditionalStore, kind: str, newest: int = NEWEST) -> list[CommittedStage]:
    """The results of a kind that were committed last, newest first, by one listing and a few reads at once.

    At most `newest` manifests are read; those among them that are quarantined or swept, or that another version of
    Temper wrote which this one does not read, are left out.
    """
    with ThreadPoolExecutor(READS_AT_ONCE) as pool:
        found = list(pool.map(lambda key: _read(store, StagePaths(kind, key)), _newest_keys(store, kind, newest)))
    stages = [stage for stage in found if stage is not None]
    return sorted(stages, key=lambda stage: stage.manifest.created, reverse=True)


def _newest_keys(store: ConditionalStore, kind: str, newest: int) -> list[str]:
    dated: list[tuple[float, str]] = []
    for listed in store.list(kind_folder(kind)):
        key = listed.path.removeprefix(f"{kind_folder(kind)}/").partition("/")[0]
        if listed.path == StagePaths(kind, key).manifest:
            dated.append((listed.modified, key))
    return [key for _, key in sorted(dated, reverse=True)[:newest]]


def _read(store: ConditionalStore, paths: StagePaths) -> CommittedStage | None:
    try:
        manifest, payload = read_manifest(store, paths), read_spec(store, paths)
    except UnreadableRecordError:
        return None
    return CommittedStage(manifest, payload) if manifest is not None and payload is not None else None
