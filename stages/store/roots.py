"""What keeps results in a store from being garbage."""

from collections.abc import Iterator

from stages.store.aliases import list_aliases
from stages.store.approvals import list_approvals
from stages.store.conditional import ConditionalStore
from stages.store.holder import Holder, is_gone
from stages.store.layout import RUNS_FOLDER
from stages.store.records import read_record
from stages.store.runs import RunRecord
from stages.store.survey import Survey, SurveyedStage

SILENT_SECONDS = 3600.0
"""A lease that was not renewed for so long belongs to nobody, whatever its holder's clock and the store's say."""
UNFINISHED_SECONDS = 30 * 86400.0
"""For so long a run that has not finished keeps what it used, if its process may be alive."""


def find_roots(
    store: ConditionalStore, found: Survey, observer: Holder, now: float, keep_runs: float
) -> dict[str, str]:
    """Keys that must stay, with the reason: aliases, approvals, recent runs, and what is being worked on.

    Args:
        store: the store.
        found: what is in it.
        observer: this process.
        now: in seconds since 1970.
        keep_runs: age in seconds up to which a run that finished keeps what it used.
    """
    roots = {key: "work that goes on" for key, stage in found.stages.items() if is_worked_on(stage, observer, now)}
    roots |= dict(_recent_runs(store, observer, now, keep_runs))
    roots |= {key: f"approval of {one.gate}" for one in list_approvals(store) for key in one.stages.values()}
    return roots | dict(_aliases(store))


def is_worked_on(stage: SurveyedStage, observer: Holder, now: float) -> bool:
    """Whether somebody holds the stage's lease and may be alive."""
    if stage.lease is None or stage.lease_object is None or stage.lease.state == "released":
        return False
    return now - stage.lease_object.modified < SILENT_SECONDS and not is_gone(stage.lease.holder, observer)


def _recent_runs(store: ConditionalStore, observer: Holder, now: float, keep_runs: float) -> Iterator[tuple[str, str]]:
    for listed in store.list(RUNS_FOLDER):
        age = now - listed.modified
        if not listed.path.endswith("/run.json") or age >= max(keep_runs, UNFINISHED_SECONDS):
            continue
        record = read_record(store, listed.path, RunRecord)
        if record is not None and (age < keep_runs or _may_go_on(record, observer)):
            for stage in record.stages:
                if stage.key is not None:
                    yield stage.key, "recent runs"


def _may_go_on(record: RunRecord, observer: Holder) -> bool:
    if record.outcome == "waiting_approval":
        return True
    return record.finished is None and (record.holder is None or not is_gone(record.holder, observer))


def _aliases(store: ConditionalStore) -> Iterator[tuple[str, str]]:
    """Also where each pointed to before: that is where people go back to."""
    for alias in list_aliases(store):
        targets = (alias.checkpoint, alias.report)
        keys = [target.key for target in targets if target is not None]
        for key in [*keys, *([alias.previous] if alias.previous else [])]:
            yield key, f"alias {alias.name}"
