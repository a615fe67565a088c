"""Committed results whose files are missing or changed: found, told, set aside."""

from pipelines.spec.nodes import StageNode
from pipelines.spec.planned import Damage, Plan
from stages.store.conditional import ConditionalStore
from stages.store.layout import StagePaths
from stages.store.manifest import CHANGED, Manifest, check_files, quarantine


def find_damage(store: ConditionalStore, manifest: Manifest, deep: bool) -> Damage | None:
    """What is wrong with a committed result; `deep` compares the checksum of every file."""
    problems = check_files(store, manifest, deep)
    return Damage(manifest.attempt, tuple(problems)) if problems else None


def damage_reason(manifest: Manifest, damage: Damage) -> str:
    """For example `3 of 41 objects missing: run again`."""
    total = sum(len(entries) for entries in manifest.outputs.values())
    missing = all(problem.endswith(": missing") for problem in damage.problems)
    what = "missing" if missing else "missing or changed"
    copied = len(damage.problems) == total and all(problem.endswith(CHANGED) for problem in damage.problems)
    hint = ", or --verify deep if the store was copied here" if copied else ""
    return f"{len(damage.problems)} of {total} objects {what}: run again{hint}"


def set_damaged_aside(plan: Plan, store: ConditionalStore) -> None:
    """Quarantine the committed results whose files the plan found missing or changed, so that they can be made again.

    Raises:
        StorageError: the store could not be written.
    """
    for planned in plan.nodes.values():
        if planned.damage is not None and planned.key is not None and isinstance(planned.node, StageNode):
            reason = "; ".join(planned.damage.problems)
            quarantine(store, StagePaths(planned.node.kind, planned.key), reason, planned.damage.attempt)
