"""The commit: a manifest that is created once, trusted alone, and quarantined when its files are not there."""

import hashlib
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, RootModel

from stages.contract import FileEntry, SourceRef, StageInput, StoredInput, Strict
from stages.errors import StorageError, TemperError, UserError
from stages.store.conditional import ConditionalStore, PreconditionFailed, StoredObject
from stages.store.layout import StagePaths
from stages.store.lease import Lease
from stages.store.moments import shown_time
from stages.store.provenance import Provenance
from stages.store.records import decode, encode

COMMIT_TRIES = 5
COMMIT_PAUSE_SECONDS = 0.5
CHECKSUMS_AT_ONCE = 8
CHANGED = "changed since the commit"
"""Of a file that has its size and another generation."""


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
    sources: tuple[SourceRef, ...] = ()
    """What settings and inputs name outside the store, with the content that went into the key."""
    created: str
    """UTC, ISO 8601."""
    seconds: float
    """From the start of the attempt to its commit."""
    num_steps: int | None = None
    """Steps that the attempt executed in this time, where the stage has steps."""
    provenance: Provenance

    @property
    def paths(self) -> StagePaths:
        return StagePaths(self.stage, self.key)

    def output_folder(self, output: str) -> str:
        """Store path of an output's folder."""
        return self.paths.attempt(self.attempt).out(output)

    def files_of(self, output: str) -> tuple[FileEntry, ...]:
        """The files of an output.

        Raises:
            UserError: the stage had no such output when this was committed.
        """
        if output not in self.outputs:
            raise UserError(
                f"{self.stage} {self.key[:16]} was committed on {self.created[:10]}, when the stage had no output "
                f"'{output}' yet: have it made again with --force"
            )
        return self.outputs[output]

    def as_input(self, output: str) -> StoredInput:
        """An output as the input of a stage; raises `UserError` as `files_of`."""
        return StoredInput(
            stage=self.stage,
            key=self.key,
            output=output,
            folder=self.output_folder(output),
            files=self.files_of(output),
        )


class Quarantined(Strict):
    """A manifest whose files were found missing or changed: readers treat it as absent."""

    state: Literal["quarantined"] = "quarantined"
    attempt: str
    reason: str
    moved_to: str
    """Store path of what the manifest said."""


class Condemned(Strict):
    """A manifest that nothing needed when garbage was collected: still good, until it is swept."""

    state: Literal["condemned"] = "condemned"
    attempt: str
    condemned_at: str
    """UTC, ISO 8601."""
    manifest: str
    """What the manifest said, byte for byte: a hit puts it back."""


class Swept(Strict):
    """A manifest whose files are deleted: readers treat it as absent."""

    state: Literal["swept"] = "swept"
    attempt: str
    swept_at: str
    """UTC, ISO 8601."""
    by: str = ""
    """Of the collector, which knows its own write by it."""


class ManifestFile(RootModel[Annotated[Manifest | Quarantined | Condemned | Swept, Field(discriminator="state")]]):
    """What `manifest.json` may hold."""


@dataclass(frozen=True)
class Committed:
    """The manifest is this attempt's."""

    manifest: Manifest


@dataclass(frozen=True)
class Adopted:
    """Another attempt committed first; its manifest is the result and this attempt is superseded."""

    manifest: Manifest


@dataclass(frozen=True)
class StoredManifest:
    """What `manifest.json` holds: its bytes, and what they say."""

    stored: StoredObject
    content: Manifest | Quarantined | Condemned | Swept

    @property
    def committed(self) -> Manifest | None:
        """The result that can be used: that of a condemned manifest too, until it is swept."""
        if isinstance(self.content, Condemned):
            return decode(Manifest, self.content.manifest.encode(), "condemned manifest")
        return self.content if isinstance(self.content, Manifest) else None


def read_manifest_file(store: ConditionalStore, paths: StagePaths) -> StoredManifest | None:
    """The manifest in whatever state, or None before the first commit."""
    stored = store.get(paths.manifest)
    if stored is None:
        return None
    return StoredManifest(stored, decode(ManifestFile, stored.data, store.location(paths.manifest)).root)


def read_manifest(store: ConditionalStore, paths: StagePaths) -> Manifest | None:
    """The committed manifest, to look at; None if there is none, or it is quarantined or swept.

    What is about to be used is read with `claim_manifest`.
    """
    found = read_manifest_file(store, paths)
    return None if found is None else found.committed


def claim_manifest(store: ConditionalStore, paths: StagePaths) -> Manifest | None:
    """The committed manifest, to use: one that is condemned as garbage becomes a committed one again."""
    while True:
        found = read_manifest_file(store, paths)
        if found is None or not isinstance(found.content, Condemned):
            return None if found is None else found.committed
        with suppress(PreconditionFailed):
            store.swap(paths.manifest, found.content.manifest.encode(), found.stored.generation)
            return found.committed


def why_lost(store: ConditionalStore, paths: StagePaths) -> str | None:
    """Why a result that was committed is absent, if that is so."""
    found = read_manifest_file(store, paths)
    match found.content if found else None:
        case Quarantined(reason=reason):
            return f"quarantined: {reason}"
        case Swept(swept_at=moment):
            return f"collected as garbage {shown_time(moment)}"
        case _:
            return None


def manifest_digest(manifest: Manifest) -> str:
    """sha256 of what was committed: key and files, whoever made them and wherever they lie now."""
    outputs = {name: [(f.path, f.size, f.crc32c) for f in files] for name, files in manifest.outputs.items()}
    content = json.dumps([manifest.stage, manifest.key, outputs], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def check_files(store: ConditionalStore, manifest: Manifest, deep: bool = False) -> list[str]:
    """What is wrong with the files of a manifest, one line each.

    By one listing of sizes and generations. With `deep`, by the checksum of every file instead of its generation, so
    that files are right which were copied from elsewhere.
    """
    problems = list(_listed_problems(store, manifest, generations=not deep))
    return problems + (_checksum_problems(store, manifest) if deep and not problems else [])


def _listed_problems(store: ConditionalStore, manifest: Manifest, generations: bool) -> Iterator[str]:
    found = {listed.path: listed for listed in store.list(manifest.paths.attempt(manifest.attempt).outputs)}
    for output, entries in sorted(manifest.outputs.items()):
        for entry in entries:
            listed = found.get(f"{manifest.output_folder(output)}/{entry.path}")
            if listed is None:
                yield f"{output}/{entry.path}: missing"
            elif listed.size != entry.size:
                yield f"{output}/{entry.path}: {listed.size} bytes, committed were {entry.size}"
            elif generations and listed.generation != entry.generation:
                yield f"{output}/{entry.path}: {CHANGED}"


def _checksum_problems(store: ConditionalStore, manifest: Manifest) -> list[str]:
    entries = [(output, entry) for output, files in sorted(manifest.outputs.items()) for entry in files]
    paths = [f"{manifest.output_folder(output)}/{entry.path}" for output, entry in entries]
    with ThreadPoolExecutor(CHECKSUMS_AT_ONCE) as pool:
        found = list(pool.map(store.checksum, paths))
    return [
        f"{output}/{entry.path}: crc32c is {crc32c or 'unknown'}, committed was {entry.crc32c}"
        for (output, entry), crc32c in zip(entries, found, strict=True)
        if crc32c != entry.crc32c
    ]


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
        found = read_manifest_file(store, paths)
        if found is not None and isinstance(found.content, Manifest):
            # Also after an error: our write may have taken effect although its answer was lost.
            current = found.content
            return Committed(current) if current.attempt == manifest.attempt else Adopted(current)
        try:
            if found is None:
                store.create(paths.manifest, encode(manifest))
            else:
                store.swap(paths.manifest, encode(manifest), found.stored.generation)
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
        found = read_manifest_file(store, paths)
        if found is None or found.committed is None or attempt not in (None, found.content.attempt):
            return
        moved_to = _keep(store, paths, found.stored.data)
        quarantined = Quarantined(attempt=found.content.attempt, reason=reason, moved_to=moved_to)
        try:
            store.swap(paths.manifest, encode(quarantined), found.stored.generation)
            return
        except PreconditionFailed:
            attempt = found.content.attempt


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
