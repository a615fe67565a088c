"""What of a store is garbage, by a survey of it: decided here, done in `gc.py`."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from stages.store.conditional import ConditionalStore, Listed
from stages.store.holder import Holder
from stages.store.local import ASIDE_FOLDER
from stages.store.manifest import Condemned
from stages.store.progress import survey_progress
from stages.store.roots import SILENT_SECONDS, find_roots, is_worked_on
from stages.store.survey import SurveyedStage, survey

DAY = 86400.0


@dataclass(frozen=True)
class Retention:
    """How long what nobody needs is kept, in seconds.

    Attributes:
        grace: from the moment when a result is condemned to its deletion, and the least age of what else goes.
        runs: for which a run keeps what it used.
    """

    grace: float = 7 * DAY
    runs: float = 30 * DAY


@dataclass(frozen=True)
class Doomed:
    """A stage, and the objects of it that go or would go."""

    stage: SurveyedStage
    objects: tuple[Listed, ...]

    @property
    def num_bytes(self) -> int:
        """Their size."""
        return sum(listed.size for listed in self.objects)


@dataclass
class Garbage:
    """What to do, in this order.

    Attributes:
        rescues: condemned results that something needs again.
        condemned: results that nothing needs; they are marked, and stay.
        swept: results that were condemned at least a grace ago; they go.
        leftovers: parts of stages that no later attempt reads.
        aside: files that writers of a local store left behind when they died.
        kept: keys that stay, and what for; those without a reason are what others were made from.
    """

    kept: dict[str, str]
    rescues: list[SurveyedStage] = field(default_factory=list)
    condemned: list[Doomed] = field(default_factory=list)
    swept: list[Doomed] = field(default_factory=list)
    leftovers: list[Doomed] = field(default_factory=list)
    aside: tuple[Listed, ...] = ()


def find_garbage(store: ConditionalStore, retention: Retention, observer: Holder, now: float) -> Garbage:
    """Decide about everything in a store; writes nothing.

    Args:
        store: the store.
        retention: how long what is kept.
        observer: this process.
        now: seconds since 1970.

    Raises:
        StorageError: the store cannot be read, or holds a record that this version does not know.
    """
    found = survey(store)
    reasons = find_roots(store, found, observer, now, retention.runs)
    garbage = Garbage({key: reasons.get(key, "") for key in found.upstream(reasons)})
    old = now - retention.grace
    for stage in sorted(found.stages.values(), key=lambda stage: (stage.paths.kind, stage.paths.key)):
        if not is_worked_on(stage, observer, now):
            _sort_stage(store, garbage, stage, old)
    garbage.aside = tuple(one for one in store.list(ASIDE_FOLDER) if one.modified <= min(old, now - SILENT_SECONDS))
    return garbage


def _sort_stage(store: ConditionalStore, garbage: Garbage, stage: SurveyedStage, old: float) -> None:
    """Nobody works on the stage. What was last written before `old` may go."""
    needed = stage.paths.key in garbage.kept
    condemned = stage.manifest is not None and isinstance(stage.manifest.content, Condemned)
    if condemned and needed:
        garbage.rescues.append(stage)
    elif condemned and _moment(stage) <= old:
        garbage.swept.append(Doomed(stage, stage.objects))
        return
    elif stage.committed is not None and not needed and not condemned:
        garbage.condemned.append(Doomed(stage, stage.objects))
    elif stage.committed is None and not needed:
        if stage.objects and not _is_young(stage.objects, old):
            garbage.leftovers.append(Doomed(stage, stage.objects))
        return
    if parts := tuple(_dead_parts(store, stage, old)):
        garbage.leftovers.append(Doomed(stage, parts))


def _moment(stage: SurveyedStage) -> float:
    """When the manifest came into its state, by the store's clock."""
    assert stage.manifest_object is not None
    return stage.manifest_object.modified


def _is_young(objects: Iterable[Listed], old: float) -> bool:
    return any(listed.modified > old for listed in objects)


def _dead_parts(store: ConditionalStore, stage: SurveyedStage, old: float) -> Iterator[Listed]:
    """Outputs and steps of a stage that no later attempt reads; records, metrics and logs stay."""
    newest = stage.lease.attempt if stage.lease else None
    best = _best_step(store, stage)
    for attempt, objects in stage.attempts.items():
        paths = stage.paths.attempt(attempt)
        outputs = [one for one in objects if one.path.startswith(f"{paths.outputs}/")]
        progress = [one for one in objects if one.path.startswith(f"{paths.progress_folder}/")]
        if stage.committed is None:
            # Whoever makes the stage may still resume from the best step.
            if attempt != newest and not _is_young(objects, old):
                yield from (*outputs, *(progress if attempt != best.attempt else ()))
            continue
        if attempt != stage.committed.attempt and not _is_young(objects, old):
            yield from outputs
        # One step stays for the grace, in case that the result turns out to be damaged.
        kept = best if _moment(stage) > old else _NO_STEP
        yield from (one for one in progress if not kept.has(stage, one))


@dataclass(frozen=True)
class _Step:
    attempt: str
    step: int

    def has(self, stage: SurveyedStage, listed: Listed) -> bool:
        paths = stage.paths.attempt(self.attempt)
        commit = paths.progress_commit(self.step)
        return listed.path == commit or listed.path.startswith(f"{paths.progress(self.step)}/")


_NO_STEP = _Step("", -1)


def _best_step(store: ConditionalStore, stage: SurveyedStage) -> _Step:
    """The highest committed step whose files are as they were."""
    if all("/progress/" not in one.path for one in stage.objects):
        return _NO_STEP
    points = survey_progress(store, stage.paths, limit=1).points
    return _Step(points[0].attempt, points[0].step) if points else _NO_STEP
