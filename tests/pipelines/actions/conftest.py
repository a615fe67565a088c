"""Gates with the requirements of a test."""

from collections.abc import Callable

import pytest

from pipelines.spec.diagnostics import Place
from pipelines.spec.expressions import reports
from pipelines.spec.nodes import Condition, GateNode, StageOutput
from pipelines.spec.references import OutputReference
from pipelines.spec.require import parse_requirement
from stages.contract import ReportArtifact


@pytest.fixture
def gate() -> Callable[..., GateNode]:
    """A gate on the report of `tuned`."""

    def gate(*require: str) -> GateNode:
        requirements: list[Condition] = []
        for text in require:
            expression = parse_requirement(text)
            named = (report for report in reports(expression) if isinstance(report, OutputReference))
            outputs = tuple(StageOutput(report.stage, report.output, ReportArtifact) for report in named)
            requirements.append(Condition(text, expression, outputs))
        own = StageOutput("tuned", "report", ReportArtifact)
        return GateNode("gate", {"report": own}, tuple(requirements), "stop", (), Place("f", 1, 1))

    return gate
