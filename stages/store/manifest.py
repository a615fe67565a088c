"""The commit: a manifest that is created once, trusted alone, and quarantined when its files are not there."""

import time
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, RootModel

from stages.contract import FileEntry, StageInput, Strict
from stages.errors import StorageError, TemperError
from stages.store.conditional import ConditionalStore, PreconditionFailed, StoredObject
from stages.store.layout import StagePaths
from stages.store.lease import Lease
from stages.store.provenance import Provenance
from stages.store.records import decode, encode

COMMIT_TRIES = 5
COMMIT_PAUSE_SECONDS = 0.5


class SpecMismatchError(TemperError):
    """Two different identity payloads have the same key: a mistake in the key scheme, or a damaged store."""


class Manifest(Strict):
    """A committed result and where it came from."""

    state: Literal["committed"] = "committed"
    stage: str
    """Kind of the stage."""
    key: str
    version: int
    attempt: str
    epoch: int
    outputs: dict[str, tuple[FileEntry, ...]]
    """Files of each output, relative to the output's folder."""
    numbers: dict[str, float]
    inputs: dict[str, StageInput]
    created: str
    """UTC, ISO 8601."""
    seconds: float
    """From the start of the attempt to its commit."""
    provenance: Provenance

    @property
    def paths(self) -> StagePaths:
        return StagePaths(self.stage, self.key)

    def output_folder(self, output: str) -> str:
        """Store path of an output's folder."""
        return self.paths.attempt(self.attempt).out(output)


class Quarantined(Strict):
    """A manifest whose files were found missing or changed: readers treat it as absent."""

    state: Literal["quarantined"] = "quarantined"
    attempt: str
    reason: str
    moved_to: str
    """Store path of what the manifest said."""


class ManifestFile(RootModel[Annotated[Manifest | Quarantined, Field(discriminator="state")]]):
    """What `manifest.json` may hold."""


@dataclass(frozen=True)
class Committed:
    """The manifest is this attempt's."""

    manifest: Manifest


@dataclass(frozen=True)
class Adopted:
    """Another attempt committed first; its manifest is the result and this attempt is superseded."""

    manifest: Manifest


def _read(store: ConditionalStore, paths: StagePaths) -> tuple[StoredObject | None, Manifest | None]:
    stored = store.get(paths.manifest)
    if stored is None:
        return None, None
    content = decode(ManifestFile, stored.data, store.location(paths.manifest)).root
    return stored, content if isinstance(content, Manifest) else None


def read_manifest(store: ConditionalStore, paths: StagePaths) -> Manifest | None:
    """The committed manifest; None if there is none or it is quarantined."""
    return _read(store, paths)[1]


def check_files(store: ConditionalStore, manifest: Manifest) -> list[str]:
    """What is wrong with the files of a manifest, one line each, by one listing of sizes and generations."""
    found = {listed.path: listed for listed in store.list(manifest.paths.attempt(manifest.attempt).outputs)}
    problems: list[str] = []
    for output, entries in sorted(manifest.outputs.items()):
        for entry in entries:
            listed = found.get(f"{manifest.output_folder(output)}/{entry.path}")
            if listed is None:
                problems.append(f"{output}/{entry.path}: missing")
            elif listed.size != entry.size:
                problems.append(f"{output}/{entry.path}: {listed.size} bytes, committed were {entry.size}")
            elif listed.generation != entry.generation:
                problems.append(f"{output}/{entry.path}: changed since the commit")
    return problems


def commit_manifest(
    store: ConditionalStore, paths: StagePaths, manifest: Manifest, lease: Lease
) -> Committed | Adopted:
    """Commit an attempt whose files are uploaded. The caller then records the outcome and releases the lease.

    Raises:
        LeaseLostError: another attempt has the lease; nothing was committed.
        StorageError: a file is not there as listed, or the store could not be written.
    """
    problems = check_files(store, manifest)
    if problems:
        raise StorageError(f"{store.location(paths.folder)}: not committed, upload incomplete: {'; '.join(problems)}")
    lease.mark_committing()
    for tries_left in reversed(range(COMMIT_TRIES)):
        stored, current = _read(store, paths)
        if current is not None:
            # Also after an error: our write may have taken effect although its answer was lost.
            return Committed(current) if current.attempt == manifest.attempt else Adopted(current)
        try:
            if stored is None:
                store.create(paths.manifest, encode(manifest))
            else:
                store.swap(paths.manifest, encode(manifest), stored.generation)
            return Committed(manifest)
        except StorageError as error:
            if tries_left == 0:
                raise
            if not isinstance(error, PreconditionFailed):
                time.sleep(COMMIT_PAUSE_SECONDS)
    raise AssertionError("the last try returns or raises")


def quarantine(store: ConditionalStore, paths: StagePaths, reason: str, attempt: str | None = None) -> None:
    """Make readers treat a committed manifest as absent, and keep what it said.

    With `attempt`, only while that attempt's manifest stands: a result that was made again meanwhile stays.
    """
    while True:
        stored, current = _read(store, paths)
        if stored is None or current is None or attempt not in (None, current.attempt):
            return
        moved_to = _keep(store, paths, stored.data)
        quarantined = Quarantined(attempt=current.attempt, reason=reason, moved_to=moved_to)
        try:
            store.swap(paths.manifest, encode(quarantined), stored.generation)
            return
        except PreconditionFailed:
            attempt = current.attempt


def _keep(store: ConditionalStore, paths: StagePaths, data: bytes) -> str:
    """Store a bad manifest's bytes under the first free number."""
    n = 1
    while True:
        path = paths.bad_manifest(n)
        try:
            store.create(path, data)
            return path
        except PreconditionFailed:
            kept = store.get(path)
            if kept is not None and kept.data == data:
                return path
            n += 1


def write_spec(store: ConditionalStore, paths: StagePaths, payload: bytes) -> None:
    """Store the identity payload once.

    Raises:
        SpecMismatchError: the key's stored payload has other bytes.
    """
    try:
        store.create(paths.spec, payload)
    except PreconditionFailed:
        stored = read_spec(store, paths)
        if stored != payload:
            raise SpecMismatchError(
                f"{store.location(paths.spec)}: holds another identity than the one with this key "
                f"({len(stored or b'')} bytes there, {len(payload)} here); report it with both"
            ) from None


def read_spec(store: ConditionalStore, paths: StagePaths) -> bytes | None:
    """The identity payload, or None before the first attempt."""
    stored = store.get(paths.spec)
    return None if stored is None else stored.data
