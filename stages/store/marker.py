"""The mark of a store: an object that says that the folder is one, and by which layout."""

import uuid

from stages.contract import Strict
from stages.errors import UserError
from stages.store.conditional import ConditionalStore, PreconditionFailed
from stages.store.layout import MARKER
from stages.store.moments import now
from stages.store.records import encode, read_record

FORMAT = 1
"""Version of the layout; the folder `v1` is named after it."""


class StoreMarker(Strict):
    """What `.store.json` says."""

    format: int
    created: str
    """UTC, ISO 8601."""
    id: str
    """Tells stores apart, also where one is a copy that was moved."""


def ensure_marker(store: ConditionalStore) -> None:
    """Mark the store unless it is marked; what is there already stays as it is."""
    if store.get(MARKER) is not None:
        return
    marker = StoreMarker(format=FORMAT, created=now(), id=uuid.uuid4().hex)
    try:
        store.create(MARKER, encode(marker))
    except PreconditionFailed:
        return


def check_marker(store: ConditionalStore) -> StoreMarker:
    """The mark of a store from which something is about to be deleted.

    Raises:
        UserError: there is none, or it is of another layout.
        StorageError: it is none that this version reads.
    """
    marker = read_record(store, MARKER, StoreMarker)
    where = store.location(MARKER)
    if marker is None:
        raise UserError(f"{where}: missing, so this may be no store; `temper run` marks the one that it uses")
    if marker.format != FORMAT:
        raise UserError(f"{where}: format {marker.format}, this version knows {FORMAT}; use the version that wrote it")
    return marker
