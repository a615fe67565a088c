"""Why a stage has to run: what differs from the committed identity that is nearest to it."""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from pydantic import JsonValue, TypeAdapter

from pipelines.spec.nodes import ExternalSource, StageNode, StageOutput
from stages.store.conditional import ConditionalStore
from stages.store.layout import StagePaths, kind_folder
from stages.store.manifest import read_manifest, read_spec

_SHOWN_CHANGES = 3
_LONGEST_VALUE = 40
_PAYLOAD = TypeAdapter(dict[str, JsonValue])


@dataclass(frozen=True)
class FieldChange:
    """A field of the identity that differs; values as JSON text, none where the field is absent."""

    path: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.path}: added {_short(self.after)}"
        if self.after is None:
            return f"{self.path}: removed {_short(self.before)}"
        return f"{self.path}: {_short(self.before)} → {_short(self.after)}"


class History:
    """The committed identities of a store, each read once: what a plan explains its decisions with."""

    def __init__(self, store: ConditionalStore) -> None:
        self._store = store
        self._fields: dict[str, dict[str, dict[str, str]]] = {}
        self._created: dict[tuple[str, str], str | None] = {}

    def changes(self, kind: str, payload: bytes, others: Collection[str]) -> tuple[FieldChange, ...] | None:
        """What differs from the nearest committed identity of a kind; none when there is none.

        Args:
            kind: kind of the stage.
            payload: its identity.
            others: keys of the plan's other stages, which are not what this stage was before.
        """
        new = _flatten(payload)
        distances: dict[int, list[str]] = {}
        for key, old in self._identities(kind).items():
            if key not in others:
                distance = len({name for name, _ in old.items() ^ new.items()})
                distances.setdefault(distance, []).append(key)
        for distance in sorted(distances):
            committed = [(created, key) for key in distances[distance] if (created := self._committed(kind, key))]
            if committed:
                _, nearest = max(committed)
                return _compare(self._fields[kind][nearest], new)
        return None

    def _identities(self, kind: str) -> Mapping[str, dict[str, str]]:
        if kind not in self._fields:
            specs = {key: read_spec(self._store, StagePaths(kind, key)) for key in _keys(self._store, kind)}
            self._fields[kind] = {key: _flatten(spec) for key, spec in specs.items() if spec is not None}
        return self._fields[kind]

    def _committed(self, kind: str, key: str) -> str | None:
        """When the result was committed; none if it is not trusted."""
        if (kind, key) not in self._created:
            manifest = read_manifest(self._store, StagePaths(kind, key))
            self._created[kind, key] = manifest.created if manifest else None
        return self._created[kind, key]


def reason_to_run(node: StageNode, changes: tuple[FieldChange, ...] | None) -> str:
    """For example `with.kl_coef: 0.02 → 0.05` or `upstream sft changed`."""
    if changes is None:
        return "never run"
    if not changes:
        return "run again"
    own = [str(change) for change in changes if not change.path.startswith("inputs.")]
    upstream = [_upstream(node, change) for change in changes if change.path.startswith("inputs.")]
    reasons = list(dict.fromkeys([*own, *upstream]))
    more = len(reasons) - _SHOWN_CHANGES
    return "; ".join(reasons[:_SHOWN_CHANGES]) + (f"; and {more} more" if more > 0 else "")


def _keys(store: ConditionalStore, kind: str) -> Iterator[str]:
    for listed in store.list(kind_folder(kind)):
        parts = listed.path.removeprefix(f"{kind_folder(kind)}/").split("/")
        if len(parts) == 2 and listed.path == StagePaths(kind, parts[0]).manifest:
            yield parts[0]


def _compare(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[FieldChange, ...]:
    return tuple(
        FieldChange(path, old.get(path), new.get(path))
        for path in sorted(old.keys() | new.keys())
        if old.get(path) != new.get(path)
    )


def _flatten(payload: bytes) -> dict[str, str]:
    return dict(_fields(_PAYLOAD.validate_json(payload), ""))


def _fields(payload: Mapping[str, JsonValue], prefix: str) -> Iterator[tuple[str, str]]:
    """Leaves as JSON text; lists and inputs are compared whole."""
    for name, value in payload.items():
        if isinstance(value, dict) and value and prefix != "inputs.":
            yield from _fields(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", json.dumps(value, sort_keys=True)


def _upstream(node: StageNode, change: FieldChange) -> str:
    match node.inputs.get(change.path.removeprefix("inputs.")):
        case StageOutput(stage=stage):
            return f"upstream {stage} changed"
        case ExternalSource(uri=uri):
            return f"{change.path}: the content is now that of {uri}"
        case None:
            return str(change)


def _short(value: str | None) -> str:
    text = value or ""
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"
