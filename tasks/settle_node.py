"""The Prefect task of what runs in the flow's own process, so that every node of a pipeline is in its graph."""

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from stages.store.runs import RunStage
from tasks.state_names import ENDS


@task(cache_policy=NO_CACHE, persist_result=False)
def settle_node(node: RunStage) -> State[None]:
    """Show what a gate, an action or a skipped node came to."""
    text = "\n".join(part for part in (node.message, *node.lines) if part) or node.reason
    if node.outcome == "failed":
        return Failed(name=ENDS["failed"] if node.kind == "gate" else "Failed", message=text)
    return Completed(name=ENDS[node.outcome], message=text)
