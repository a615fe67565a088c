"""Every stage of a store and what it takes from others: one listing, and the records that say so."""

import functools
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from stages.contract import StoredInput
from stages.store.conditional import ConditionalStore, Listed
from stages.store.layout import STAGES_FOLDER, StagePaths
from stages.store.lease import LeaseRecord
from stages.store.manifest import Manifest, StoredManifest, read_manifest_file
from stages.store.payload import Payload
from stages.store.records import decode

READS_AT_ONCE = 8


@dataclass(frozen=True)
class SurveyedStage:
    """What one stage's folder holds.

    Attributes:
        paths: the stage.
        manifest: its manifest in whatever state, and `manifest_object` the listing of it.
        committed: what the manifest says, if that is still good: condemned counts as good.
        payload: its identity; empty where nobody began to work on it.
        lease: who worked on it last, and `lease_object` the listing of it.
        objects: everything below its attempts.
    """

    paths: StagePaths
    manifest: StoredManifest | None
    manifest_object: Listed | None
    committed: Manifest | None
    payload: Payload
    lease: LeaseRecord | None
    lease_object: Listed | None
    objects: tuple[Listed, ...]

    @functools.cached_property
    def attempts(self) -> Mapping[str, list[Listed]]:
        """Objects by attempt."""
        found: dict[str, list[Listed]] = {}
        for listed in self.objects:
            name = listed.path.removeprefix(f"{self.paths.attempts}/").partition("/")[0]
            found.setdefault(name, []).append(listed)
        return found

    def upstream_keys(self) -> set[str]:
        """Keys of the stages whose outputs it takes, also while it has no result yet."""
        if self.committed is not None:
            return {value.key for value in self.committed.inputs.values() if isinstance(value, StoredInput)}
        return {value.key for value in self.payload.inputs.values() if value.key is not None}


@dataclass(frozen=True)
class Survey:
    """All stages of a store by key; no two kinds share one."""

    stages: Mapping[str, SurveyedStage]

    def upstream(self, keys: Iterable[str]) -> set[str]:
        """These stages and all that they were made from, at any distance; keys that the store lacks are left out."""
        found: set[str] = set()
        waiting = [key for key in keys if key in self.stages]
        while waiting:
            key = waiting.pop()
            if key not in found:
                found.add(key)
                waiting.extend(above for above in self.stages[key].upstream_keys() if above in self.stages)
        return found


def survey(store: ConditionalStore) -> Survey:
    """Look at the whole store.

    Raises:
        StorageError: it cannot be read, or a record is none that this version knows.
    """
    folders: dict[StagePaths, list[Listed]] = {}
    for listed in store.list(STAGES_FOLDER):
        parts = listed.path.removeprefix(f"{STAGES_FOLDER}/").split("/", 2)
        if len(parts) == 3:
            folders.setdefault(StagePaths(parts[0], parts[1]), []).append(listed)
    with ThreadPoolExecutor(READS_AT_ONCE) as pool:
        stages = list(pool.map(lambda item: _stage(store, *item), folders.items()))
    return Survey({stage.paths.key: stage for stage in stages})


def _stage(store: ConditionalStore, paths: StagePaths, listed: list[Listed]) -> SurveyedStage:
    found = {one.path: one for one in listed}
    manifest = read_manifest_file(store, paths) if paths.manifest in found else None
    spec = store.get(paths.spec) if paths.spec in found else None
    lease = store.get(paths.lease) if paths.lease in found else None
    return SurveyedStage(
        paths=paths,
        manifest=manifest,
        manifest_object=found.get(paths.manifest),
        committed=manifest.committed if manifest else None,
        payload=decode(Payload, spec.data, store.location(paths.spec)) if spec else Payload(),
        lease=decode(LeaseRecord, lease.data, store.location(paths.lease)) if lease else None,
        lease_object=found.get(paths.lease),
        objects=tuple(_below(paths.attempts, listed)),
    )


def _below(folder: str, listed: Iterable[Listed]) -> Iterator[Listed]:
    return (one for one in listed if one.path.startswith(f"{folder}/"))
