"""Connects the nodes of a pipeline: checks every input and need, and the type of every edge."""

from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.spec.diagnostics import KeyPath, Place, Problems, did_you_mean
from pipelines.spec.nodes import Condition, ExternalSource, StageOutput
from pipelines.spec.references import OutputReference, parse_template
from pipelines.spec.require import parse_requirement, reports
from pipelines.spec.require_tokens import RequireSyntaxError
from pipelines.spec.tree import Table, locate
from stages.catalog import STAGES
from stages.contract import Artifact, ModelArtifact, ReportArtifact
from stages.errors import UserError
from stages.sources.resolve import check


@dataclass(frozen=True)
class Edge:
    """A need of a node, and where it is written."""

    needed: str
    place: Place
    path: KeyPath


class Wiring:
    """The nodes as they are known before they are connected: tables by id, and the kind of each stage."""

    def __init__(self, tables: Mapping[str, Table], kinds: Mapping[str, str], problems: Problems) -> None:
        """Kinds has no entry for a gate, nor for a stage whose kind is unknown and reported."""
        self._tables = tables
        self._kinds = kinds
        self._problems = problems
        self.edges: dict[str, list[Edge]] = {node: [] for node in tables}

    def stage_inputs(self, node: str, inputs: Mapping[str, str]) -> dict[str, StageOutput | ExternalSource]:
        """The inputs of a stage; what is missing, unknown or of another type is reported."""
        wanted = STAGES[self._kinds[node]].inputs
        found: dict[str, StageOutput | ExternalSource] = {}
        for name, text in inputs.items():
            place, path = self._locate(node, ("inputs", name))
            if name not in wanted:
                self._problems.add(place, path, f"unknown input `{name}`{did_you_mean(name, wanted)}")
                continue
            resolved = self._input(node, text, wanted[name], place, path)
            if resolved is not None:
                found[name] = resolved
        self._report_missing(node, inputs, wanted)
        return found

    def _report_missing(self, node: str, inputs: Mapping[str, str], wanted: Mapping[str, type[Artifact]]) -> None:
        for name, artifact in wanted.items():
            if name not in inputs and not any(did_you_mean(given, [name]) for given in inputs if given not in wanted):
                place, path = self._locate(node, ("inputs", name))
                self._problems.add(place, path, f"required, but missing: takes a {artifact_name(artifact)}")

    def gate_report(self, node: str, text: str) -> StageOutput | None:
        """The report that a gate looks at."""
        place, path = self._locate(node, ("inputs", "report"))
        resolved = self._input(node, text, ReportArtifact, place, path)
        return resolved if isinstance(resolved, StageOutput) else None

    def requirements(self, node: str, texts: tuple[str, ...]) -> tuple[Condition, ...]:
        """The conditions of a gate, parsed."""
        found: list[Condition] = []
        for index, text in enumerate(texts):
            place, path = self._locate(node, ("require", index))
            if self._problems.silenced(path):
                continue
            try:
                expression = parse_requirement(text)
            except RequireSyntaxError as error:
                self._problems.add(place, path, f"{error} in `{text}`")
                continue
            outputs = [
                self._output(node, report, ReportArtifact, place, path)
                for report in reports(expression)
                if isinstance(report, OutputReference)
            ]
            found.append(Condition(text, expression, tuple(output for output in outputs if output)))
        return tuple(found)

    def add_needs(self, node: str, needs: tuple[str, ...]) -> None:
        """Needs without data."""
        for index, needed in enumerate(needs):
            place, path = self._locate(node, ("needs", index))
            if needed in self._tables:
                self.edges[node].append(Edge(needed, place, path))
            else:
                self._problems.add(place, path, f"unknown stage `{needed}`{did_you_mean(needed, self._tables)}")

    def _locate(self, node: str, path: KeyPath) -> tuple[Place, KeyPath]:
        table = self._tables[node]
        place, _ = locate(table, path)
        return place, ("stages", node, *path)

    def _input(
        self, node: str, text: str, wanted: type[Artifact], place: Place, path: KeyPath
    ) -> StageOutput | ExternalSource | None:
        if self._problems.silenced(path):
            return None
        pieces = parse_template(text)
        if len(pieces) == 1 and isinstance(pieces[0], OutputReference):
            return self._output(node, pieces[0], wanted, place, path)
        if any(isinstance(piece, OutputReference) for piece in pieces):
            self._problems.add(place, path, "an output of a stage has to be the whole value")
            return None
        if wanted is not ModelArtifact:
            name = artifact_name(wanted)
            message = f"takes a {name} from a stage, such as `${{stages.ID.outputs.NAME}}`, not `{text}`"
            self._problems.add(place, path, message)
            return None
        try:
            check(text)
        except UserError as error:
            self._problems.add(place, path, str(error))
            return None
        return ExternalSource(text, place)

    def _output(
        self, node: str, reference: OutputReference, wanted: type[Artifact], place: Place, path: KeyPath
    ) -> StageOutput | None:
        stage, output = reference.stage, reference.output
        if stage not in self._tables:
            self._problems.add(place, path, f"unknown stage `{stage}`{did_you_mean(stage, self._tables)}")
            return None
        self.edges[node].append(Edge(stage, place, path))
        if stage not in self._kinds:
            if "gate" in self._tables[stage].entries:
                self._problems.add(place, path, f"`{stage}` is a gate and has no outputs")
            return None
        outputs = STAGES[self._kinds[stage]].outputs
        if output not in outputs:
            hint = did_you_mean(output, outputs) or f"; it has {', '.join(f'`{name}`' for name in outputs)}"
            self._problems.add(place, path, f"`{stage}` has no output `{output}`{hint}")
            return None
        artifact = outputs[output]
        if not issubclass(artifact, wanted):
            message = f"takes a {artifact_name(wanted)}, but `{reference}` is a {artifact_name(artifact)}"
            self._problems.add(place, path, message)
            return None
        return StageOutput(stage, output, artifact)


def artifact_name(artifact: type[Artifact]) -> str:
    """What a message calls an artifact: model, dataset, report."""
    return artifact.__name__.removesuffix("Artifact").lower()
