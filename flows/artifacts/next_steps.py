"""What to do after a run that did not succeed, as markdown."""

from flows.artifacts.markdown import code
from pipelines.spec.command_line import command_line
from pipelines.spec.nodes import Pipeline
from stages.store.runs import RunRecord, RunStage

ADVICE = {
    "user_error": "Mend the data or the setting that the message names.",
    "bug": "The log has the traceback.",
    "storage": "Look whether the store can be reached and written; what was saved is still there.",
    "oom": "Take a smaller `train_micro_batch`, which changes no result, or let `retry.on_oom` do so.",
    "infra": "The process was killed from outside. `retry.on: [infra]` tries again by itself.",
    "stalled": "No sign of life for `timeout.stall`. The log says where it stood.",
    "timeout": "It took longer than `timeout.total`. Run again to go on, or give it more time.",
    "preempted": "It was taken away more often than `retry.preempted.max` allows. Run again to go on.",
    "fenced": "Another run took the stage over. Its result will be reused.",
    "corrupt": "An input was damaged and is set aside. Run again to have it made again.",
}


def next_steps(record: RunRecord, pipeline: Pipeline) -> str:
    """For each node that failed its cause and how to see more, and how to go on."""
    failed = [stage for stage in record.stages if stage.outcome == "failed"]
    parts = [f"**{record.pipeline} {record.outcome}**" + (f": {record.message}" if record.message else "")]
    parts += [_about(stage, pipeline) for stage in failed]
    parts.append(_go_on(record, pipeline))
    return "\n\n".join(parts)


def _about(stage: RunStage, pipeline: Pipeline) -> str:
    if stage.key is None or stage.lines:
        return "\n\n".join([f"### {stage.id}", stage.message, *[f"- {line}" for line in stage.lines]])
    advice = ADVICE.get(stage.message.partition(":")[0], "")
    log = f"What it printed:\n\n{code(command_line(pipeline, 'logs', stage.id))}"
    return "\n\n".join(part for part in (f"### {stage.id}", code(stage.message), advice, log) if part)


def _go_on(record: RunRecord, pipeline: Pipeline) -> str:
    if record.outcome == "waiting_approval":
        gates = [stage.id for stage in record.stages if stage.outcome == "waiting_approval"]
        commands = [command_line(pipeline, "approve", gate) for gate in gates]
        commands.append(command_line(pipeline, "run"))
        return "### Approve, then go on\n\n" + code("\n".join(commands))
    return (
        "### Go on\n\nWhat is committed is reused, and what saved its progress goes on from there: press *Retry*, or"
        f"\n\n{code(command_line(pipeline, 'run'))}"
    )
