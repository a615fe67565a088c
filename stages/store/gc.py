"""Deleting what nothing needs, so that no reader ever sees a live manifest without its files.

A result goes in two steps: its manifest is swapped to *condemned*, which a hit undoes; after a grace it is swapped to
*swept*, which readers take for absent, and only then its files are deleted. Both are swaps on a generation, so of a hit
and a sweep at the same time one loses. The small records of a swept stage stay: epochs must only grow.
"""

import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from stages.store.conditional import ConditionalStore, Listed, PreconditionFailed
from stages.store.gc_plan import Doomed, Garbage
from stages.store.manifest import Condemned, Manifest, Swept, claim_manifest
from stages.store.marker import check_marker
from stages.store.moments import now
from stages.store.progress import COMMIT_SUFFIX
from stages.store.records import encode

DELETES_AT_ONCE = 8


@dataclass
class Collected:
    """What was done: objects that are gone, their bytes, and results that somebody else changed meanwhile."""

    objects: int = 0
    num_bytes: int = 0
    condemned: int = 0
    skipped: int = 0


def collect(store: ConditionalStore, garbage: Garbage) -> Collected:
    """Do what `find_garbage` decided, as far as nothing changed since.

    Raises:
        UserError: the store is not marked as one of this layout; nothing was done.
        StorageError: it could not be written; what was done stays done, and the next call goes on.
    """
    check_marker(store)
    done = Collected()
    for stage in garbage.rescues:
        claim_manifest(store, stage.paths)
    for doomed in garbage.condemned:
        _condemn(store, doomed, done)
    for doomed in garbage.swept:
        if _mark_swept(store, doomed):
            _delete(store, doomed.objects, done)
        else:
            done.skipped += 1
    for doomed in garbage.leftovers:
        if _is_untouched(store, doomed):
            _delete(store, doomed.objects, done)
        else:
            done.skipped += 1
    _delete(store, garbage.aside, done)
    return done


def _condemn(store: ConditionalStore, doomed: Doomed, done: Collected) -> None:
    found = doomed.stage.manifest
    assert found is not None
    assert isinstance(found.content, Manifest)
    record = Condemned(attempt=found.content.attempt, condemned_at=now(), manifest=found.stored.data.decode())
    try:
        store.swap(doomed.stage.paths.manifest, encode(record), found.stored.generation)
        done.condemned += 1
    except PreconditionFailed:
        done.skipped += 1


def _mark_swept(store: ConditionalStore, doomed: Doomed) -> bool:
    """Whether the manifest is swept now by this call; not if a hit or another collector came first."""
    found, path = doomed.stage.manifest, doomed.stage.paths.manifest
    assert found is not None
    record = encode(Swept(attempt=found.content.attempt, swept_at=now(), by=uuid.uuid4().hex))
    try:
        store.swap(path, record, found.stored.generation)
        return True
    except PreconditionFailed:
        # Or it was this call, and its answer was lost.
        stored = store.get(path)
        return stored is not None and stored.data == record


def _is_untouched(store: ConditionalStore, doomed: Doomed) -> bool:
    """Whether nobody took the stage's lease since the survey: its new holder may resume from what is there."""
    surveyed = doomed.stage.lease_object
    stored = store.get(doomed.stage.paths.lease)
    return (stored.generation if stored else None) == (surveyed.generation if surveyed else None)


def _delete(store: ConditionalStore, objects: Iterable[Listed], done: Collected) -> None:
    """Commit records of steps go first: a step without its files must not look committed."""
    ordered = list(objects)
    records = [listed for listed in ordered if listed.path.endswith(COMMIT_SUFFIX)]
    rest = [listed for listed in ordered if not listed.path.endswith(COMMIT_SUFFIX)]
    with ThreadPoolExecutor(DELETES_AT_ONCE) as pool:
        for group in (records, rest):
            for listed in pool.map(lambda one: _delete_one(store, one), group):
                done.objects += 1
                done.num_bytes += listed.size


def _delete_one(store: ConditionalStore, listed: Listed) -> Listed:
    store.delete(listed.path)
    return listed
