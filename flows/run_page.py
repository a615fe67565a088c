"""The page of a run in Prefect: what it planned, what became of it, its curves, its evaluations and what to do next."""

from flows.artifacts.curves import picture
from flows.artifacts.next_steps import next_steps
from flows.artifacts.tables import evaluation_table, plan_table, stage_rows
from pipelines.spec.nodes import Pipeline
from pipelines.spec.planned import Plan
from stages.store.conditional import ConditionalStore
from stages.store.runs import RunRecord
from tasks.artifacts import Artifact, Artifacts, artifact_key, table
from tasks.report.content import Content


class RunPage:
    """Keys begin with the pipeline's name, so that each has its history over the runs of its pipeline."""

    def __init__(self, artifacts: Artifacts, pipeline: Pipeline, store: ConditionalStore) -> None:
        self.artifacts = artifacts
        self._pipeline = pipeline
        self._store = store

    def show_plan(self, plan: Plan) -> None:
        """What the run is going to do."""
        text = f"Plan of **{plan.pipeline.name}**" + (
            f", profile {plan.pipeline.profile}" if plan.pipeline.profile else ""
        )
        self.artifacts.put(Artifact(self._key("plan"), "markdown", plan_table(plan), text))

    def show_stages(self, record: RunRecord) -> None:
        """What became of every node so far."""
        data = table(stage_rows(self._store, record))
        self.artifacts.put(Artifact(self._key("stages"), "table", data, f"Run {record.run_id}: {record.outcome}"))

    def show_end(self, content: Content) -> None:
        """All that the run came to."""
        record = content.run
        self.show_stages(record)
        if content.evaluations:
            text = evaluation_table(content.evaluations)
            self.artifacts.put(Artifact(self._key("evaluation"), "markdown", text, "Evaluations"))
        for curves in content.curves:
            key, text = self._key("curves", curves.stage.id), f"Curves of **{curves.stage.id}**"
            # Prefect shows the address of an image artifact below it, which would be the whole picture once more.
            self.artifacts.put(Artifact(key, "markdown", f"![curves]({picture(curves.series)})", text))
        if record.outcome != "succeeded":
            self.artifacts.put(
                Artifact(self._key("next-steps"), "markdown", next_steps(record, self._pipeline), "What to do next")
            )

    def show_question(self, gate: str, question: str) -> None:
        """What a person is asked."""
        self.artifacts.put(Artifact(self._key("question", gate), "markdown", question, f"Approval of **{gate}**"))

    def _key(self, *parts: str) -> str:
        return artifact_key(self._pipeline.name, *parts)
