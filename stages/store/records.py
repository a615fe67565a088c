"""Strict records as the JSON objects that a store holds."""

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from stages.errors import StorageError
from stages.store.conditional import ConditionalStore, StoredObject

R = TypeVar("R", bound=BaseModel)


def encode(record: BaseModel) -> bytes:
    return record.model_dump_json(indent=1).encode() + b"\n"


def decode(kind: type[R], stored: StoredObject, where: str) -> R:
    """The record in an object.

    Raises:
        StorageError: it is none of this kind; another version of Temper may have written it.
    """
    try:
        return kind.model_validate_json(stored.data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise StorageError(
            f"{where}: no {kind.__name__} that this version reads ({field}: {first['msg']}); "
            "use the version of Temper that wrote it"
        ) from error


def read_record(store: ConditionalStore, path: str, kind: type[R]) -> R | None:
    """The record at `path`, or None if there is no object."""
    stored = store.get(path)
    return None if stored is None else decode(kind, stored, store.location(path))
