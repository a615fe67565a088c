"""A gate that asks a person, in a run that a worker can start again: it ends, and goes on with the answer."""

from prefect.client.orchestration import get_client
from prefect.events import emit_event
from prefect.flow_runs import suspend_flow_run
from prefect.input import RunInput
from pydantic import Field
from rich.console import Console

from flows.approving import asked_about, record_answer
from flows.artifacts.tables import evaluation_table
from flows.finish import close_run
from flows.pause_key import pause_key
from flows.pipeline_run import PipelineRun
from flows.run_page import RunPage
from flows.this_flow_run import ThisFlowRun
from pipelines.spec.command_line import command_line
from pipelines.spec.nodes import HumanGateNode
from pipelines.spec.planned import PlannedNode
from tasks.report.content import Content

ASK_SECONDS = 7 * 86400.0
"""How long a gate waits that asks a person about an evaluation."""


class Answer(RunInput):
    """The form."""

    approved: bool = Field(default=False, title="Approved", description="Switched off, the run ends here.")
    by: str = Field(title="Your name", min_length=1)
    comment: str = Field(default="", title="Comment")


class HumanGate:
    """One gate of one run."""

    def __init__(self, run: PipelineRun, gate: PlannedNode, here: ThisFlowRun) -> None:
        self._run = run
        self._gate = gate
        self._here = here
        about = asked_about(run.store, run.plan.nodes, gate)
        self._pause_key = pause_key(about.gate_key, about.manifests)

    def ask(self, page: RunPage, console: Console) -> None:
        """Write down the answer; before there is one this raises Prefect's `Pause`, by which the process ends."""
        question = ""
        if not self._has_asked():
            content = close_run(self._run, console)
            question = self._question(content)
            page.show_question(self._gate.node.id, question)
            page.show_end(content)
            page.artifacts.close()
            self._announce()
        node = self._gate.node
        seconds = node.timeout if isinstance(node, HumanGateNode) else ASK_SECONDS
        form = Answer.with_initial_data(description=question)
        answer = suspend_flow_run(wait_for_input=form, timeout=int(seconds), key=self._pause_key)
        plan = self._run.plan
        record_answer(
            self._run.store,
            plan.nodes,
            self._gate,
            plan.pipeline.name,
            approved=answer.approved,
            by=answer.by,
            comment=answer.comment,
        )
        self._run.ask_again()

    def _has_asked(self) -> bool:
        with get_client(sync_client=True) as client:
            policy = client.read_flow_run(self._here.id).empirical_policy
        return self._pause_key in (policy.pause_keys or ())

    def _question(self, content: Content) -> str:
        """Who is asked about what, and the numbers to decide on."""
        node, record = self._gate.node, content.run
        approvers = node.approvers if isinstance(node, HumanGateNode) else ()
        who = f" asks {', '.join(approvers)}" if approvers else ""
        parts = [f"**{record.pipeline}**, gate **{node.id}**{who}: may the pipeline go on?"]
        parts += [f"- {stage.id}: {line}" for stage in record.stages for line in stage.lines]
        if content.evaluations:
            parts.append(evaluation_table(content.evaluations))
        parts.append(f"From a terminal: `{command_line(self._run.plan.pipeline, 'approve', node.id)}`")
        return "\n\n".join(parts)

    def _announce(self) -> None:
        gate, run = self._gate, self._here
        emit_event(
            event="temper.gate.waiting",
            resource={"prefect.resource.id": f"temper.gate.{gate.key}", "prefect.resource.name": gate.node.id},
            related=[{"prefect.resource.id": f"prefect.flow-run.{run.id}", "prefect.resource.role": "flow-run"}],
            payload={"pipeline": self._run.plan.pipeline.name, "gate": gate.node.id, "run": run.run_id},
        )
