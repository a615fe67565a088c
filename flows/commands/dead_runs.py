"""Runs whose process is gone without having written an end."""

from stages.store.holder import is_gone, this_holder
from stages.store.runs import RunRecord, RunStage


def as_it_stands(record: RunRecord) -> RunRecord:
    """The record; one that says `running` but whose process is known to be gone shows as failed."""
    if record.outcome != "running" or record.holder is None or not is_gone(record.holder, this_holder()):
        return record
    stages = tuple(_interrupted(stage) for stage in record.stages)
    update = {"outcome": "failed", "message": "its process is gone; run again to go on", "stages": stages}
    return record.model_copy(update=update)


def _interrupted(stage: RunStage) -> RunStage:
    if stage.outcome == "running":
        return stage.model_copy(update={"outcome": "stopped"})
    return stage.model_copy(update={"outcome": "skipped"}) if stage.outcome == "waiting" else stage
