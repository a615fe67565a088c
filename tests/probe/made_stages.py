"""Committed and unfinished stages of a store, made without running anything."""

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from stages.contract import FileEntry, StageInput, StoredInput
from stages.store.checksum import bytes_crc32c
from stages.store.conditional import ConditionalStore
from stages.store.holder import Holder
from stages.store.layout import AttemptPaths, StagePaths, attempt_name
from stages.store.lease import LeaseRecord
from stages.store.manifest import Manifest, write_spec
from stages.store.progress import ProgressCommit
from stages.store.provenance import Provenance
from stages.store.records import encode, write_record

PROVENANCE = Provenance(argv=("temper",), git_revision="abc", packages={}, host="here", python="3.11", system="Linux")
ELSEWHERE = Holder(host="elsewhere", boot_id="b", pid_namespace="n", pid=1, pid_start="1", run_url=None)


def paths_of(name: str, kind: str = "sft") -> StagePaths:
    """A stage by a name that stands for its settings."""
    return StagePaths(kind, hashlib.sha256(f"{kind} {name}".encode()).hexdigest())


def put(store: ConditionalStore, path: str, data: bytes = b"12345") -> FileEntry:
    generation = store.create(path, data)
    return FileEntry(path=path, size=len(data), crc32c=bytes_crc32c(data), generation=generation)


def make_spec(
    store: ConditionalStore, paths: StagePaths, upstream: Sequence[StagePaths] = (), **settings: object
) -> None:
    inputs = {f"in{n}": {"key": above.key, "output": "checkpoint"} for n, above in enumerate(upstream)}
    payload = {"stage": paths.kind, "with": settings, "inputs": inputs}
    write_spec(store, paths, json.dumps(payload, sort_keys=True).encode())


def make_lease(store: ConditionalStore, paths: StagePaths, epoch: int, attempt: str, state: str = "released") -> None:
    fields = {"epoch": epoch, "attempt": attempt, "holder": ELSEWHERE.model_dump(), "state": state, "beat": 0}
    write_record(store, paths.lease, LeaseRecord.model_validate(fields))


def make_progress(store: ConditionalStore, attempt: AttemptPaths, step: int) -> None:
    put(store, f"{attempt.progress(step)}/state")
    store.create(attempt.progress_commit(step), encode(ProgressCommit(step=step, created="", files=())))


def make_attempt(store: ConditionalStore, paths: StagePaths, epoch: int, steps: Sequence[int] = ()) -> AttemptPaths:
    """An attempt with a record, metrics, an output and saved steps."""
    attempt = paths.attempt(attempt_name(epoch, uuid.uuid4().hex))
    put(store, attempt.record)
    put(store, attempt.metrics(0))
    put(store, f"{attempt.out('checkpoint')}/weights")
    for step in steps:
        make_progress(store, attempt, step)
    return attempt


def commit(
    store: ConditionalStore,
    paths: StagePaths,
    upstream: Sequence[StagePaths] = (),
    external: Mapping[str, StageInput] | None = None,
    steps: Sequence[int] = (),
    epoch: int = 1,
    output: str = "checkpoint",
    files: Mapping[str, bytes] | None = None,
    **settings: object,
) -> Manifest:
    """A stage that ran and ended well."""
    make_spec(store, paths, upstream, **settings)
    name = attempt_name(epoch, uuid.uuid4().hex)
    attempt = paths.attempt(name)
    make_lease(store, paths, epoch, name)
    put(store, attempt.record)
    put(store, attempt.metrics(0))
    for step in steps:
        make_progress(store, attempt, step)
    entries = [put(store, f"{attempt.out(output)}/{file}", data) for file, data in (files or {"w": b"1"}).items()]
    manifest = Manifest(
        stage=paths.kind,
        key=paths.key,
        version=1,
        attempt=name,
        epoch=epoch,
        outputs={output: tuple(one.model_copy(update={"path": Path(one.path).name}) for one in entries)},
        numbers={"loss": 0.5},
        inputs={**{f"in{n}": stored_input(above) for n, above in enumerate(upstream)}, **(external or {})},
        created="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        provenance=PROVENANCE,
    )
    store.create(paths.manifest, encode(manifest))
    return manifest


def stored_input(paths: StagePaths) -> StoredInput:
    return StoredInput(stage=paths.kind, key=paths.key, output="checkpoint", folder="unused", files=())
