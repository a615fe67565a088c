"""What a pipeline file says beside its stages: its schedule, whom to notify, and where metrics are shown."""

from collections.abc import Collection
from pathlib import Path

from pipelines.spec.diagnostics import Problems, did_you_mean
from pipelines.spec.location import folder_of
from pipelines.spec.nodes import Notify, ParamValue, Schedule
from pipelines.spec.params import Params, typed_value
from pipelines.spec.sections import PipelineSection
from pipelines.spec.tree import Scalar, Table, locate, lookup, replace
from stages.sources.files import absolute_path
from stages.trackers import Trackers


def build_schedule(
    section: PipelineSection, tree: Table, params: Params, profiles: Collection[str], problems: Problems
) -> Schedule | None:
    """The schedule, if there is one; an unknown profile or parameter is reported."""
    schedule = section.schedule
    if schedule is None:
        return None
    if schedule.profile is not None and schedule.profile not in profiles:
        path = ("schedule", "profile")
        problems.add(
            locate(tree, path)[0],
            path,
            f"unknown profile `{schedule.profile}`{did_you_mean(schedule.profile, profiles)}",
        )
    values = _schedule_params(tree, params, problems)
    return Schedule(schedule.cron, schedule.timezone, schedule.profile, values, schedule.overlap)


def _schedule_params(tree: Table, params: Params, problems: Problems) -> dict[str, ParamValue]:
    values: dict[str, ParamValue] = {}
    found = lookup(tree, ("schedule", "params"))
    for name, entry in found.entries.items() if isinstance(found, Table) else ():
        path = ("schedule", "params", name)
        if name in params.types:
            value = typed_value(entry, params.types[name], path, problems)
            if value is not None:
                values[name] = value
        elif name not in params.broken:
            problems.add(entry.key_place, path, f"unknown parameter `{name}`{did_you_mean(name, params.types)}")
    return values


def build_notify(section: PipelineSection) -> Notify | None:
    """Whom to notify, if anybody."""
    return None if section.notify is None else Notify(section.notify.on, section.notify.to)


def absolute_tracker_folders(tree: Table, pipeline: Path) -> Table:
    """The file with the folders of trackers absolute; each is relative to the file that it is written in."""
    for tracker in Trackers.model_fields:
        path = ("trackers", tracker, "folder")
        found = lookup(tree, path)
        if isinstance(found, Scalar) and isinstance(found.value, str) and found.value:
            changed = replace(tree, path, absolute_path(found.value, folder_of(found.written, pipeline)))
            assert isinstance(changed, Table), "the root stays a table"
            tree = changed
    return tree
