"""A stage as its task run in Prefect shows it: states under names of our own, and its progress as an artifact."""

from prefect.client.schemas.objects import TaskRun

from stages.contract import Beat
from tasks.artifacts import Artifact, Artifacts, artifact_key
from tasks.display import describe_numbers
from tasks.named_states import NamedStates


class TaskRunObserver:
    """Implements `StageObserver`; lines are for the log of the task run, which is another one's."""

    def __init__(self, stage: str, run: TaskRun, artifacts: Artifacts) -> None:
        self._stage = stage
        self._run = run
        self._states = NamedStates(run)
        self._artifacts = artifacts
        self._is_named = False

    def waiting(self, text: str) -> None:
        self._show("Waiting", text)

    def running(self, text: str) -> None:
        if self._is_named:
            self._show("Running", text)

    def preempted(self, text: str) -> None:
        self._show("Preempted", text)

    def note(self, text: str) -> None:
        """Is a line."""

    def beat(self, beat: Beat) -> None:
        share = 100.0 * min(beat.step / beat.total, 1.0) if beat.total else 0.0
        text = f"**{self._stage}** step {beat.step} of {beat.total}  {describe_numbers(beat.numbers)}"
        self._artifacts.put(Artifact(artifact_key("progress", self._stage), "progress", share, text, self._run.id))

    def log(self, line: str) -> None:
        """Is a line."""

    def _show(self, name: str, text: str) -> None:
        self._is_named = True
        self._states.show(name, text)
