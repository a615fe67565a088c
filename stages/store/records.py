"""Strict records as the JSON objects that a store holds."""

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from stages.errors import StorageError
from stages.store.conditional import ConditionalStore, PreconditionFailed

R = TypeVar("R", bound=BaseModel)


class UnreadableRecordError(StorageError):
    """An object holds no record of the kind that is expected; another version of Temper may have written it."""


def encode(record: BaseModel) -> bytes:
    """JSON that people can read too."""
    return record.model_dump_json(indent=1).encode() + b"\n"


def decode(kind: type[R], data: bytes, where: str) -> R:
    """The record in an object's bytes.

    Raises:
        UnreadableRecordError: it is none of this kind.
    """
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise UnreadableRecordError(
            f"{where}: no {kind.__name__} that this version reads ({field}: {first['msg']}); "
            "use the version of Temper that wrote it"
        ) from error


def read_record(store: ConditionalStore, path: str, kind: type[R]) -> R | None:
    """The record at `path`, or None if there is no object."""
    stored = store.get(path)
    return None if stored is None else decode(kind, stored.data, store.location(path))


def write_record(store: ConditionalStore, path: str, record: BaseModel) -> None:
    """Create the record at `path` or replace what is there; the last writer wins."""
    write_object(store, path, encode(record))


def write_object(store: ConditionalStore, path: str, data: bytes) -> None:
    """Create the object at `path` or replace what is there; the last writer wins."""
    while True:
        stored = store.get(path)
        try:
            if stored is None:
                store.create(path, data)
            elif stored.data != data:
                store.swap(path, data, stored.generation)
            return
        except PreconditionFailed:
            # Another writer came between, or our write took effect and its answer was lost: look again.
            continue
