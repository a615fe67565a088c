"""Connects a node of a pipeline to others: checks its inputs and needs, and the type of every edge."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelines.spec.diagnostics import KeyPath, Place, did_you_mean
from pipelines.spec.expressions import Expression, ReportReference, reports, with_reports
from pipelines.spec.graph import Draft, Graph, UnknownNodeError
from pipelines.spec.location import folder_of
from pipelines.spec.nodes import AliasOutput, Condition, ExternalSource, StageInputSpec, StageOutput
from pipelines.spec.references import AliasReference, OutputReference, Reference, parse_template
from pipelines.spec.require import parse_condition, parse_requirement
from pipelines.spec.require_tokens import RequireSyntaxError
from pipelines.spec.tree import Scalar, locate, lookup
from stages.contract import Artifact, DatasetArtifact, ModelArtifact, ReportArtifact
from stages.errors import UserError
from stages.sources.resolve import absolute, check


@dataclass(frozen=True)
class Edge:
    """A need of a node, and where it is written."""

    needed: str
    place: Place
    path: KeyPath


class Wiring:
    """What a node is connected to; `edges` grows with every connection."""

    def __init__(self, draft: Draft, graph: Graph, pipeline: Path) -> None:
        self._draft = draft
        self._graph = graph
        self._pipeline = pipeline
        self._problems = draft.problems
        self.edges: list[Edge] = []

    @property
    def needs(self) -> tuple[str, ...]:
        """Every node that comes first."""
        return tuple(dict.fromkeys(edge.needed for edge in self.edges))

    def stage_inputs(
        self,
        inputs: Mapping[str, str],
        required: Mapping[str, type[Artifact]],
        optional: Mapping[str, type[Artifact]],
    ) -> dict[str, StageInputSpec]:
        """The inputs of a stage; what is missing, unknown or of another type is reported."""
        wanted = {**required, **optional}
        found: dict[str, StageInputSpec] = {}
        for name, text in inputs.items():
            place, path = self._locate(("inputs", name))
            if name not in wanted:
                self._problems.add(place, path, f"unknown input `{name}`{did_you_mean(name, wanted)}")
                continue
            resolved = self._input(text, wanted[name], place, path)
            if resolved is not None:
                found[name] = resolved
        self._report_missing(inputs, required)
        return found

    def outputs(self, texts: tuple[str, ...], at: KeyPath, wanted: type[Artifact]) -> tuple[StageOutput, ...]:
        """The outputs that one text or a list of them refers to, `[*]` to those of every instance."""
        found: list[StageOutput] = []
        as_list = len(texts) != 1 or not isinstance(lookup(self._draft.table, at), Scalar)
        for index, text in enumerate(texts):
            place, path = self._locate((*at, index) if as_list else at)
            if self._problems.silenced(path):
                continue
            reference = _whole(text)
            if isinstance(reference, OutputReference):
                found += self._outputs(reference, wanted, place, path)
            else:
                message = f"takes a {artifact_name(wanted)} from a stage, such as `${{stages.ID.outputs.NAME}}`"
                self._problems.add(place, path, f"{message}, not `{text}`")
        return tuple(found)

    def output(self, text: str, at: KeyPath, wanted: type[Artifact]) -> StageOutput | None:
        """The one output that a text refers to."""
        found = self.outputs((text,), at, wanted)
        if len(found) > 1:
            self._problems.add(*self._locate(at), f"takes one {artifact_name(wanted)}, not {len(found)}: `{text}`")
        return found[0] if len(found) == 1 else None

    def condition(self, text: str, at: KeyPath, own_report: bool) -> Condition | None:
        """A condition, parsed; one of a gate may look at the metrics of the gate's own report."""
        place, path = self._locate(at)
        if self._problems.silenced(path):
            return None
        try:
            expression = parse_requirement(text) if own_report else parse_condition(text)
        except RequireSyntaxError as error:
            self._problems.add(place, path, f"{error} in `{text}`")
            return None
        return self._connected(text, expression, place, path)

    def add_needs(self, needs: tuple[str, ...]) -> None:
        """Needs without data; of a fanned-out stage, all instances."""
        for index, needed in enumerate(needs):
            place, path = self._locate(("needs", index))
            try:
                self.edges += [Edge(node, place, path) for node in self._graph.find(needed, bare=True)]
            except UnknownNodeError as error:
                self._problems.add(place, path, str(error))

    def _connected(self, text: str, expression: Expression, place: Place, path: KeyPath) -> Condition | None:
        names: dict[OutputReference, OutputReference] = {}
        found: dict[ReportReference, StageOutput | AliasOutput] = {}
        for reference in reports(expression):
            if isinstance(reference, AliasReference):
                found[reference] = AliasOutput(reference.name, ReportArtifact, place)
                continue
            outputs = self._outputs(reference, ReportArtifact, place, path)
            if len(outputs) > 1:
                self._problems.add(place, path, f"`${{{reference}}}` is a list, and a condition looks at one report")
            for output in outputs:
                names[reference] = output.reference
                found[output.reference] = output
        return Condition(text, with_reports(expression, names), tuple(found.values()))

    def _report_missing(self, inputs: Mapping[str, str], wanted: Mapping[str, type[Artifact]]) -> None:
        for name, artifact in wanted.items():
            if name not in inputs and not any(did_you_mean(given, [name]) for given in inputs if given not in wanted):
                place, path = self._locate(("inputs", name))
                self._problems.add(place, path, f"required, but missing: takes a {artifact_name(artifact)}")

    def _locate(self, path: KeyPath) -> tuple[Place, KeyPath]:
        place, _ = locate(self._draft.table, path)
        return place, (*self._draft.path, *path)

    def _input(self, text: str, wanted: type[Artifact], place: Place, path: KeyPath) -> StageInputSpec | None:
        if self._problems.silenced(path):
            return None
        pieces = parse_template(text)
        match pieces:
            case (OutputReference(),):
                return self.output(text, path[2:], wanted)
            case (AliasReference(name=name),) if wanted is not DatasetArtifact:
                return AliasOutput(name, wanted, place)
            case (AliasReference(),):
                self._problems.add(place, path, "takes a dataset, but an alias stands for a model and its report")
            case (str() as uri,) if wanted is ModelArtifact:
                return self._source(uri, place, path)
            case (str() as uri,):
                name = artifact_name(wanted)
                message = f"takes a {name} from a stage, such as `${{stages.ID.outputs.NAME}}`, not `{uri}`"
                self._problems.add(place, path, message)
            case _:
                self._problems.add(place, path, "an output of a stage has to be the whole value")
        return None

    def _source(self, uri: str, place: Place, path: KeyPath) -> ExternalSource | None:
        written = lookup(self._draft.table, path[2:])
        folder = folder_of(written.written if isinstance(written, Scalar) else None, self._pipeline)
        try:
            check(uri)
            elsewhere = folder != folder_of(None, self._pipeline)
            return ExternalSource(absolute(uri, folder) if elsewhere else uri, place)
        except UserError as error:
            self._problems.add(place, path, str(error))
            return None

    def _outputs(
        self, reference: OutputReference, wanted: type[Artifact], place: Place, path: KeyPath
    ) -> list[StageOutput]:
        try:
            nodes = self._graph.find(reference.stage, bare=False)
        except UnknownNodeError as error:
            self._problems.add(place, path, str(error))
            return []
        self.edges += [Edge(node, place, path) for node in nodes]
        found = [self._typed(OutputReference(node, reference.output), wanted, place, path) for node in nodes]
        return [output for output in found if output is not None]

    def _typed(
        self, reference: OutputReference, wanted: type[Artifact], place: Place, path: KeyPath
    ) -> StageOutput | None:
        outputs, group = self._graph.outputs(reference.stage), reference.stage.partition("[")[0]
        if outputs is None:
            return None
        if not outputs:
            what = self._graph.what(reference.stage)
            self._problems.add(place, path, f"`{group}` is {what} and has no outputs")
            return None
        if reference.output not in outputs:
            hint = did_you_mean(reference.output, outputs) or f"; it has {', '.join(f'`{name}`' for name in outputs)}"
            self._problems.add(place, path, f"`{group}` has no output `{reference.output}`{hint}")
            return None
        artifact = outputs[reference.output]
        if not issubclass(artifact, wanted):
            message = f"takes a {artifact_name(wanted)}, but `{reference}` is a {artifact_name(artifact)}"
            self._problems.add(place, path, message)
            return None
        return StageOutput(reference.stage, reference.output, artifact)


def artifact_name(artifact: type[Artifact]) -> str:
    """What a message calls an artifact: model, dataset, report."""
    return artifact.__name__.removesuffix("Artifact").lower()


def _whole(text: str) -> str | Reference | None:
    pieces = parse_template(text)
    return pieces[0] if len(pieces) == 1 else None
