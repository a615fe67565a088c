"""Two results, or two runs, compared: every stage that differs, what came first at the top."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pipelines.spec.field_changes import FieldChange, changed_fields
from stages.errors import UserError
from stages.store.conditional import ConditionalStore
from stages.store.layout import STAGES_FOLDER, StagePaths
from stages.store.manifest import read_spec

SHORTEST_PREFIX = 8


@dataclass(frozen=True)
class StageDifference:
    """A stage that has another identity.

    Attributes:
        stage: its name in the pipeline, or its kind where only a key is known.
        before: its key.
        after: its key.
        changes: what differs, its own fields before its inputs; empty where the store holds no identity to compare.
    """

    stage: str
    before: str
    after: str
    changes: tuple[FieldChange, ...]

    @property
    def cause(self) -> FieldChange | None:
        """The first field that differs and that no stage before it explains."""
        return next((change for change in self.changes if change.moved_keys is None), None)


@dataclass(frozen=True)
class Difference:
    """What differs between two sides; the stages in an order in which they can run."""

    stages: tuple[StageDifference, ...]
    only_before: tuple[str, ...] = ()
    only_after: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    """Stages whose key one side does not know yet."""

    @property
    def first(self) -> StageDifference | None:
        """The first stage that differs by itself, and not only by what it takes from others."""
        return next((stage for stage in self.stages if stage.cause or not stage.changes), None)

    @property
    def is_empty(self) -> bool:
        return not (self.stages or self.only_before or self.only_after or self.unknown)


@dataclass(frozen=True)
class Side:
    """One side of a comparison: keys by stage, none where it is not known, and identities that are not stored yet."""

    keys: Mapping[str, str | None]
    payloads: Mapping[str, bytes] = field(default_factory=dict)


class Identities:
    """The identities of a store, by one listing; each is read once."""

    def __init__(self, store: ConditionalStore) -> None:
        self._store = store
        self._payloads: dict[str, bytes | None] = {}
        paths = (listed.path.removeprefix(f"{STAGES_FOLDER}/").split("/") for listed in store.list(STAGES_FOLDER))
        self._kinds = {path[1]: path[0] for path in paths if path[2:] == ["spec.json"]}

    def find(self, prefix: str) -> str:
        """The only key that begins so.

        Raises:
            UserError: there is none, there are several, or too little of it is given.
        """
        keys = sorted(key for key in self._kinds if key.startswith(prefix))
        if len(prefix) < SHORTEST_PREFIX or len(keys) != 1:
            several = f"{len(keys)} keys begin so: write more of it" if len(keys) > 1 else "the store has no such key"
            short = f"a key is given by at least {SHORTEST_PREFIX} of its characters"
            raise UserError(f"'{prefix}': {short if len(prefix) < SHORTEST_PREFIX else several}")
        return keys[0]

    def kind(self, key: str) -> str:
        """Kind of a stored key."""
        return self._kinds[key]

    def payload(self, key: str) -> bytes | None:
        """The identity behind a key; none if the store has none."""
        if key not in self._payloads:
            kind = self._kinds.get(key)
            self._payloads[key] = read_spec(self._store, StagePaths(kind, key)) if kind is not None else None
        return self._payloads[key]


def compare_sides(identities: Identities, before: Side, after: Side) -> Difference:
    """Compare two runs, or a run and a plan, stage by stage."""
    stages: list[StageDifference] = []
    unknown: list[str] = []
    for stage, new in after.keys.items():
        old = before.keys.get(stage)
        if old is not None and new is not None and old != new:
            stages.append(StageDifference(stage, old, new, _changes(identities, before, after, old, new)))
        elif stage in before.keys and (old is None or new is None):
            unknown.append(stage)
    only_before = tuple(stage for stage in before.keys if stage not in after.keys)
    only_after = tuple(stage for stage in after.keys if stage not in before.keys)
    return Difference(tuple(stages), only_before, only_after, tuple(unknown))


def _changes(identities: Identities, before: Side, after: Side, old: str, new: str) -> tuple[FieldChange, ...]:
    was = before.payloads.get(old) or identities.payload(old)
    becomes = after.payloads.get(new) or identities.payload(new)
    return changed_fields(was, becomes) if was is not None and becomes is not None else ()


def compare_results(identities: Identities, before: str, after: str) -> Difference:
    """Compare two stored keys, and what they were made from, input by input."""
    return Difference(tuple(_walk(identities, before, after, set())))


def _walk(identities: Identities, before: str, after: str, seen: set[tuple[str, str]]) -> Iterator[StageDifference]:
    """What differs before what takes it."""
    if before == after or (before, after) in seen:
        return
    seen.add((before, after))
    old, new = identities.payload(before), identities.payload(after)
    if old is None or new is None:
        yield StageDifference("?", before, after, ())
        return
    changes = changed_fields(old, new)
    for change in changes:
        if change.moved_keys is not None:
            yield from _walk(identities, *change.moved_keys, seen)
    yield StageDifference(identities.kind(after), before, after, changes)
