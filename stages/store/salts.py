"""What `--force` adds to a stage's identity, so that the forced result is the current one in every later plan."""

import uuid

from stages.contract import Strict
from stages.store.conditional import ConditionalStore, PreconditionFailed
from stages.store.layout import SALTS_FOLDER, salt_path
from stages.store.records import encode, read_record


class Salt(Strict):
    """What `salts/{key}.json` says; `key` is the identity without a salt."""

    salt: str


def read_salt(store: ConditionalStore, key: str) -> str | None:
    """The salt of the stage whose unsalted key is `key`, or None if it was never forced."""
    record = read_record(store, salt_path(key), Salt)
    return None if record is None else record.salt


def salted_keys(store: ConditionalStore) -> frozenset[str]:
    """The unsalted keys of all stages that were ever forced, by one listing."""
    names = (listed.path.rpartition("/")[2] for listed in store.list(SALTS_FOLDER))
    return frozenset(name.removesuffix(".json") for name in names)


def write_salt(store: ConditionalStore, key: str) -> str:
    """Give the stage a new salt and return the one that stands: another run may force the stage at the same time."""
    salt = Salt(salt=uuid.uuid4().hex)
    stored = store.get(salt_path(key))
    try:
        if stored is None:
            store.create(salt_path(key), encode(salt))
        else:
            store.swap(salt_path(key), encode(salt), stored.generation)
    except PreconditionFailed:
        # Another salt, as new as ours, stands already; or ours does, and its answer was lost.
        return read_salt(store, key) or salt.salt
    return salt.salt
