"""The one Prefect task: a stage, with retries by cause and a state that says how its result came about."""

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.logging import get_run_logger
from prefect.states import Completed

from stages.errors import StorageError
from tasks.execute_stage import execute_stage
from tasks.stage_work import StageDone, StageFailedError, StageWork


@task(cache_policy=NO_CACHE, persist_result=False)
def run_stage(work: StageWork) -> State[StageDone]:
    """Run or reuse one stage.

    Raises:
        StageFailedError: with the cause.
    """
    work.display.start(work.node.id, "starting")
    logger = get_run_logger()
    try:
        done = execute_stage(work, logger.info)
    except StorageError as error:
        raise StageFailedError("storage", str(error), "storage" in work.node.retry.on) from error
    work.display.end(work.node.id, describe_done(done))
    return Completed(name=done.state, message=describe_done(done), data=done)
