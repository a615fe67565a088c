"""The flow run that this process executes, as far as a run of a pipeline must know it."""

import os
from dataclasses import dataclass
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext
from prefect.settings import PREFECT_API_URL

from flows.prefect_pages import flow_run_url
from stages.store.runs import run_id_of

HANDS_BACK = "reschedule"


@dataclass(frozen=True)
class ThisFlowRun:
    """A flow run.

    Attributes:
        id: Prefect's.
        run_id: ours. It sorts by the time of the first start, and stays when the flow run is retried or resumed, which
            is how such a run goes on with its record.
        url: its page.
        is_deployed: whether a worker executes it, who can execute it again.
    """

    id: UUID
    run_id: str
    url: str
    is_deployed: bool

    @property
    def is_handed_back(self) -> bool:
        """Whether a worker goes on with it elsewhere when this process is asked to end."""
        behaviour = os.environ.get("PREFECT_FLOW_RUN_EXECUTE_SIGTERM_BEHAVIOR", "")
        return self.is_deployed and behaviour.lower() == HANDS_BACK


def this_flow_run() -> ThisFlowRun:
    """Call it in the flow."""
    context = FlowRunContext.get()
    assert context is not None
    assert context.flow_run is not None
    with get_client(sync_client=True) as client:
        # What the context has was read before the start.
        flow_run = client.read_flow_run(context.flow_run.id)
    started = flow_run.start_time
    assert started is not None, "it runs"
    return ThisFlowRun(
        id=flow_run.id,
        # The beginning of an id is a time for some versions of it, the end never is.
        run_id=run_id_of(started, flow_run.id.hex[-8:]),
        url=flow_run_url(PREFECT_API_URL.value(), str(flow_run.id)),
        is_deployed=flow_run.deployment_id is not None,
    )
