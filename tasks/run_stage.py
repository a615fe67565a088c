"""The one Prefect task: a stage, with retries by cause and a state that says how its result came about."""

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import TaskRunContext
from prefect.logging import get_run_logger
from prefect.states import Cancelled, Completed
from prefect.tasks import Task

from pipelines.spec.nodes import Retry
from stages.errors import StorageError
from tasks.artifacts import Artifact, Artifacts, artifact_key
from tasks.display import StageDisplay, describe_seconds, describe_steps
from tasks.execute_stage import execute_stage
from tasks.links import address
from tasks.observer import LineObserver, Observers, StageObserver
from tasks.stage_work import StageDone, StageFailedError, StageWork
from tasks.task_run_observer import TaskRunObserver


@task(cache_policy=NO_CACHE, persist_result=False)
def run_stage(work: StageWork, artifacts: Artifacts) -> State[StageDone]:
    """Run or reuse one stage; one that its user stopped is cancelled, with the error as its data.

    Raises:
        StageFailedError: with the cause.
    """
    stage = work.node.id
    work.display.start(stage, "starting")
    try:
        with work.stop.busy():
            done = execute_stage(work, _observer(work, artifacts))
    except StorageError as error:
        failure = StageFailedError("storage", str(error), "storage" in work.node.retry.on)
        work.display.end(stage, _describe_failure(failure, work.node.retry))
        raise failure from error
    except StageFailedError as error:
        work.display.end(stage, _describe_failure(error, work.node.retry))
        if error.cause == "stopped":
            return Cancelled(message=f"{error.message}; what it saved is there for the next run", data=error)
        raise
    work.display.end(stage, describe_done(done))
    artifacts.put(_link(work))
    return Completed(name=done.state, message=describe_done(done), data=done)


def _observer(work: StageWork, artifacts: Artifacts) -> StageObserver:
    context = TaskRunContext.get()
    assert context is not None
    return Observers(
        StageDisplay(work.display, work.node.id),
        LineObserver(get_run_logger().info),
        TaskRunObserver(work.node.id, context.task_run, artifacts),
    )


def _link(work: StageWork) -> Artifact:
    place = address(work.store, work.paths.manifest)
    text = f"[{work.node.id}: {place}]({place})"
    context = TaskRunContext.get()
    assert context is not None
    key = artifact_key("result", work.node.id)
    return Artifact(key, "markdown", text, f"Manifest of **{work.node.id}**", context.task_run.id)


def is_retriable(_task: Task[..., object], _run: TaskRun, state: State[object]) -> bool:
    """Whether the failed attempt's cause stands in the stage's `retry.on`. Prefect takes plain functions only."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, StageFailedError) and error.retriable


def describe_done(done: StageDone) -> str:
    """For example `done in 41 s, steps 1-24`."""
    if done.state == "Reused":
        return f"reused, committed by attempt {done.manifest.attempt.partition('-')[0]} at {done.manifest.created[:19]}"
    word = "resumed and done" if done.state == "Resumed" else "done"
    return f"{word} in {describe_seconds(done.seconds)}{describe_steps(done.first_step, done.last_step)}"


def _describe_failure(error: StageFailedError, retry: Retry) -> str:
    context = TaskRunContext.get()
    attempts = context.task_run.run_count if context is not None else 1
    if error.cause == "stopped":
        return str(error)
    if not error.retriable or attempts > retry.max:
        return f"failed, {error}"
    delay = retry.delay[min(attempts, len(retry.delay)) - 1] if retry.delay else 0.0
    return f"attempt {attempts} of {retry.max + 1} failed, {error}\nnext attempt in about {describe_seconds(delay)}"
