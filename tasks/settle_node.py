"""The Prefect task of what runs in the flow's own process, so that every node of a pipeline is in its graph."""

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from stages.store.runs import RunStage
from tasks.state_names import end_name, end_text


@task(cache_policy=NO_CACHE, persist_result=False)
def settle_node(node: RunStage) -> State[None]:
    """Show what a gate, an action or a skipped node came to."""
    state = Failed if node.outcome == "failed" else Completed
    return state(name=end_name(node), message=end_text(node))
