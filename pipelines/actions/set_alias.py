"""The action `set_alias`: points a name of the store at a committed checkpoint."""

from pipelines.spec.identity import KEY_SHOWN
from pipelines.spec.planned import CommittedOutput
from stages.errors import StorageError
from stages.store.aliases import AliasMovedError, AliasRecord, AliasTarget, read_alias, set_alias
from stages.store.conditional import ConditionalStore
from stages.store.moments import now


def point_alias(
    store: ConditionalStore,
    name: str,
    checkpoint: CommittedOutput,
    report: CommittedOutput | None,
    set_by: str,
    compared: AliasRecord | None = None,
) -> str:
    """Point the alias at the checkpoint, unless it points there already; says what was done.

    Args:
        store: where the alias and the results are.
        name: of the alias.
        checkpoint: what the alias means as a model.
        report: what it means as a report.
        set_by: the run.
        compared: the alias as the run has looked at it before, if it has: only that one is moved.

    Raises:
        AliasMovedError: another run has set the alias since then, or in the same moment.
        StorageError: a manifest is gone, or the store failed.
    """
    found = read_alias(store, name)
    before = found[0] if found is not None else None
    record = AliasRecord(
        name=name,
        checkpoint=_target(store, checkpoint),
        report=None if report is None else _target(store, report),
        previous=_key_before(before, checkpoint.manifest.key),
        set_by=set_by,
        set_at=now(),
    )
    where = f"{checkpoint.manifest.stage} {checkpoint.manifest.key[:KEY_SHOWN]}"
    if before is not None and (before.checkpoint, before.report) == (record.checkpoint, record.report):
        return f"{name} points to {where} already"
    if compared is not None and before != compared and (before is None or before.set_by != set_by):
        raise AliasMovedError(_moved(name, before, compared))
    set_alias(store, record, None if found is None else found[1])
    was = "" if before is None else f", before to {_shown(before)}"
    return f"{name} points to {where}{was}"


def _key_before(before: AliasRecord | None, key: str) -> str | None:
    """The last other checkpoint, also where this one is written down again because its manifest was."""
    if before is None:
        return None
    return before.previous if before.checkpoint.key == key else before.checkpoint.key


def _moved(name: str, now: AliasRecord | None, compared: AliasRecord) -> str:
    where = f"it points to {_shown(now)}, set by {now.set_by} at {now.set_at}" if now is not None else "it is gone"
    return (
        f"alias {name} moved since this run was planned: {where}, and pointed to {_shown(compared)} when this run "
        "looked at it; run again to decide on it as it is now"
    )


def _shown(record: AliasRecord) -> str:
    return f"{record.checkpoint.stage} {record.checkpoint.key[:KEY_SHOWN]}"


def _target(store: ConditionalStore, chosen: CommittedOutput) -> AliasTarget:
    manifest = chosen.manifest
    stored = store.get(manifest.paths.manifest)
    if stored is None:
        raise StorageError(f"{store.location(manifest.paths.manifest)}: was there, and is gone; run again")
    return AliasTarget(
        stage=manifest.stage, key=manifest.key, output=chosen.output, manifest_generation=stored.generation
    )
