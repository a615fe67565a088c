"""The work pool of scheduled runs, and the rule that finds runs whose process is gone."""

from datetime import timedelta

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ActionTypes, ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.exceptions import ObjectNotFound
from prefect.states import AwaitingRetry
from prefect.workers.process import ProcessWorker

COMMAND = "python -m flows.scheduler.engine_process"
HEARTBEAT_SECONDS = 30
ZOMBIE_SECONDS = 90
ZOMBIES = "temper: runs whose process is gone"


def ensure_pool(client: SyncPrefectClient, name: str) -> None:
    """Have a process work pool whose runs are started by `COMMAND`."""
    template = ProcessWorker.get_default_base_job_template()
    template["variables"]["properties"]["command"]["default"] = COMMAND
    try:
        pool = client.read_work_pool(name)
    except ObjectNotFound:
        create = WorkPoolCreate(
            name=name,
            type="process",
            description="Runs of Temper's pipelines, on the machine of `temper up`.",
            base_job_template=template,
        )
        client.create_work_pool(create)
        return
    if pool.base_job_template != template:
        client.update_work_pool(name, WorkPoolUpdate(base_job_template=template))


def ensure_zombie_rule(client: SyncPrefectClient, within_seconds: float = ZOMBIE_SECONDS) -> None:
    """Have every run marked as crashed whose process says nothing for three heartbeats.

    Any event of the run counts as a sign of life, since the name of a state is in the name of its event. A false alarm
    is harmless: the lease in the store, not the state, decides whether a stage may be tried again.
    """
    crash: ActionTypes = ChangeFlowRunState(
        state=StateType.CRASHED,
        name="Crashed",
        message="No sign of life: its process is gone. Run it again: it goes on from what it saved.",
        force=False,
    )
    rule = AutomationCore(
        name=ZOMBIES,
        description="A run without a sign of life for three heartbeats counts as crashed; what it saved is kept.",
        trigger=EventTrigger(
            after={"prefect.flow-run.heartbeat"},
            expect={"prefect.flow-run.*"},
            match={"prefect.resource.id": "prefect.flow-run.*"},
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=within_seconds),
        ),
        actions=[crash],
    )
    existing = client.read_automations_by_name(ZOMBIES)
    if not existing:
        client.create_automation(rule)


def hand_back_pending(client: SyncPrefectClient, pool: str) -> None:
    """Have runs of a pool start again that were about to start when their worker was killed.

    No heartbeat of theirs will ever be missed. Only for a pool that has no worker.
    """
    pending = client.read_flow_runs(
        work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[pool])),
        flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.PENDING]))),
    )
    for run in pending:
        client.set_flow_run_state(run.id, AwaitingRetry(message="Its worker ended before it started."))
