"""The states that a task run shows while it works, under names of our own: `Waiting`, `Preempted`."""

from prefect.client.schemas.objects import TaskRun
from prefect.states import Running
from prefect.utilities.engine import emit_task_run_state_change_event


class NamedStates:
    """A task run that stays running for Prefect's engine, whatever the name of its state says to people.

    Prefect keeps the states of task runs by the events that their process sends, so one more event is one more state.
    """

    def __init__(self, run: TaskRun) -> None:
        self._run = run

    def show(self, name: str, message: str = "") -> None:
        """Give the run a state of type `RUNNING` with this name."""
        before, state = self._run.state, Running(name=name, message=message or None)
        state.state_details.task_run_id = self._run.id
        state.state_details.flow_run_id = self._run.flow_run_id
        if before is not None and before.is_running():
            # The engine adds the time since the latest state only.
            self._run.total_run_time += state.timestamp - before.timestamp
        emit_task_run_state_change_event(self._run, initial_state=before, validated_state=state)
        self._run.state, self._run.state_id = state, state.id
        self._run.state_type, self._run.state_name = state.type, state.name
