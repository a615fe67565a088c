"""Whether a run of a deployment finds the one before it still going.

Prefect asks this too, when a run is about to start; runs that were late got past it.
"""

from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import ConcurrencyLimitStrategy, FlowRun, State, StateType
from prefect.states import Cancelled

SKIPPED = "Skipped"
GOING = [StateType.RUNNING, StateType.CANCELLING]


def skip_if_overlapping(flow_run: UUID) -> State[str] | None:
    """The state to end in at once, where the run before still goes and its deployment says that such runs are skipped.

    A run counts as before if it started before; one that is started again keeps its first start.
    """
    with get_client(sync_client=True) as client:
        this = client.read_flow_run(flow_run)
        if this.deployment_id is None:
            return None
        options = client.read_deployment(this.deployment_id).concurrency_options
        if options is None or options.collision_strategy is not ConcurrencyLimitStrategy.CANCEL_NEW:
            return None
        before = [run for run in _going(client, this.deployment_id) if _started(run) < _started(this)]
    if not before:
        return None
    return Cancelled(name=SKIPPED, message=f"the run {min(before, key=_started).name} still goes (overlap: skip)")


def _going(client: SyncPrefectClient, deployment: UUID) -> list[FlowRun]:
    return client.read_flow_runs(
        deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=[deployment])),
        flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=GOING))),
    )


def _started(run: FlowRun) -> tuple[str, str]:
    return run.start_time.isoformat() if run.start_time else "", str(run.id)
