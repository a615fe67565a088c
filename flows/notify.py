"""Tells people, by an Apprise URL, that a run failed, waits for an approval, or succeeded."""

import logging

from pipelines.spec.nodes import Notify, NotifyEvent
from stages.errors import UserError
from stages.secrets import is_secret, resolve_secret
from stages.store.runs import RunRecord, RunStage

EVENTS: dict[str, NotifyEvent] = {"failed": "failed", "succeeded": "succeeded", "waiting_approval": "gate_waiting"}
"""Outcome of a run to the event that it is; one that was stopped by its user is none."""
TITLES: dict[NotifyEvent, str] = {
    "failed": "{pipeline} failed",
    "gate_waiting": "{pipeline} waits for approval",
    "succeeded": "{pipeline} succeeded",
}

log = logging.getLogger(__name__)


def notify(to: Notify | None, record: RunRecord) -> None:
    """Tell what a run came to, if anybody wants to know. That it cannot be told is a line in the log, no failure."""
    event = EVENTS.get(record.outcome)
    if to is None or event is None or event not in to.on:
        return
    # It takes a while to load, and few pipelines need it.
    from apprise import Apprise, NotifyType

    kinds = {"failed": NotifyType.FAILURE, "gate_waiting": NotifyType.WARNING, "succeeded": NotifyType.SUCCESS}
    try:
        address = resolve_secret(to.to) if is_secret(to.to) else to.to
    except UserError as error:
        log.warning("nobody is told: %s", error)
        return
    targets = Apprise()
    if not targets.add(address):
        log.warning("nobody is told: notify.to is no address that Apprise understands")
        return
    title = TITLES[event].format(pipeline=record.pipeline)
    if not targets.notify(body=message(record), title=title, notify_type=kinds[event]):
        log.warning("nobody was told that %s: the receiver did not take it", title)


def message(record: RunRecord) -> str:
    """Run, what happened to it and why, and where to look."""
    lines = [f"run {record.run_id}" + (f", profile {record.profile}" if record.profile else "")]
    if record.message:
        lines.append(record.message)
    lines += [_line(stage) for stage in record.stages if stage.outcome in ("failed", "waiting_approval")]
    if record.run_url is not None:
        lines.append(record.run_url)
    return "\n".join(lines)


def _line(stage: RunStage) -> str:
    why = "; ".join(stage.lines) or (stage.message.splitlines()[0] if stage.message else stage.reason)
    return f"{stage.id}: {why}"
