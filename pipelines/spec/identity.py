"""The identity of a stage: what its result depends on, as canonical JSON, and the hash of that."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from pydantic import BaseModel, JsonValue, TypeAdapter
from pydantic.fields import FieldInfo

from pipelines.spec.roles import role_of
from stages.contract import Role, StageConfigBase

SCHEME = 1
"""Version of the key scheme; another one changes every key."""
KEY_SHOWN = 16
"""Characters of a key that people see."""

_PAYLOAD = TypeAdapter(dict[str, JsonValue])

DigestOf = Callable[[str], str]
"""From the URI of an external input to the digest of its content."""


@dataclass(frozen=True)
class StoredIdentity:
    """An input that another stage makes."""

    key: str
    output: str


@dataclass(frozen=True)
class ExternalIdentity:
    """An input from outside, by its content."""

    digest: str


@dataclass(frozen=True)
class Identity:
    """What a stage is, apart from its salt.

    Attributes:
        kind: kind of the stage.
        version: of the kind, from the catalog.
        rev: from the pipeline.
        config: its settings.
        inputs: by name.
        strict: what a strict identity holds beside; others have none.
    """

    kind: str
    version: int
    rev: int
    config: StageConfigBase
    inputs: Mapping[str, StoredIdentity | ExternalIdentity]
    strict: Mapping[str, str] | None = None


def identity_payload(identity: Identity, digest_of: DigestOf, salt: str | None = None) -> bytes:
    """Canonical JSON of all that the stage's result depends on.

    Raises:
        UserError: an external input cannot be found.
    """
    payload: dict[str, JsonValue] = {
        "scheme": SCHEME,
        "stage": identity.kind,
        "version": identity.version,
        "rev": identity.rev,
        "with": _settings(identity.config, digest_of),
        "inputs": {name: _input(value) for name, value in identity.inputs.items()},
    }
    if identity.strict is not None:
        payload["strict"] = dict(identity.strict)
    if salt is not None:
        payload["salt"] = salt
    return _canonical_json(payload)


def split_salt(payload: bytes) -> tuple[bytes, str | None]:
    """The payload of the same identity without a salt, and the salt that it has."""
    content = _PAYLOAD.validate_json(payload)
    salt = content.pop("salt", None)
    assert salt is None or isinstance(salt, str)
    return _canonical_json(content), salt


def _canonical_json(content: Mapping[str, JsonValue]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def key_of(payload: bytes) -> str:
    """64 hexadecimal digits."""
    return hashlib.sha256(payload).hexdigest()


def _input(value: StoredIdentity | ExternalIdentity) -> JsonValue:
    match value:
        case StoredIdentity(key=key, output=output):
            return {"key": key, "output": output}
        case ExternalIdentity(digest=digest):
            return {"digest": digest}


def _settings(settings: BaseModel, digest_of: DigestOf) -> JsonValue:
    kept: dict[str, JsonValue] = {}
    for name, field in type(settings).model_fields.items():
        value = settings.__dict__[name]
        role = role_of(field)
        if role is Role.EXECUTION or (role is Role.ADDED and value == _default(field)):
            continue
        kept[name] = _sources(value, digest_of) if role is Role.SOURCE else _canonical(value, digest_of)
    return kept


def _default(field: FieldInfo) -> object:
    return field.get_default(call_default_factory=True, validated_data={})


def _sources(value: object, digest_of: DigestOf) -> JsonValue:
    """Values of a setting that names external inputs."""
    match value:
        case None:
            return None
        case str():
            return digest_of(value)
        case BaseModel():
            return _settings(value, digest_of)
        case tuple() | list():
            return [_sources(item, digest_of) for item in value]
        case dict():
            return {_text_key(key): _sources(item, digest_of) for key, item in value.items()}
        case _:
            raise TypeError(f"{type(value).__name__} names no external input")


def _canonical(value: object, digest_of: DigestOf) -> JsonValue:
    match value:
        case BaseModel():
            return _settings(value, digest_of)
        case Enum():
            return _canonical(value.value, digest_of)
        case None | bool() | int() | str():
            return value
        case float():
            return value if value != 0 else 0.0
        case tuple() | list():
            return [_canonical(item, digest_of) for item in value]
        case dict():
            return {_text_key(key): _canonical(item, digest_of) for key, item in value.items()}
        case _:
            raise TypeError(f"a setting of type {type(value).__name__} has no canonical form")


def _text_key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"a key of type {type(key).__name__} has no canonical form")
    return key
