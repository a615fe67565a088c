"""The inputs of a planned stage as its process gets them."""

from collections.abc import Mapping

from pipelines.spec.nodes import AliasOutput, ExternalSource, StageInputSpec, StageNode
from pipelines.spec.planned import Plan, PlannedNode, produced_by
from stages.contract import ExternalInput, StageInput
from stages.store.manifest import Manifest


def stage_inputs(planned: PlannedNode, plan: Plan, manifests: Mapping[str, Manifest]) -> dict[str, StageInput]:
    """The inputs of a stage that is to run, by name.

    Args:
        planned: the stage; its key is known.
        plan: the plan that it stands in.
        manifests: committed results by key, at least those of the stages that it takes something from.
    """
    assert isinstance(planned.node, StageNode)
    return {name: _input(value, planned, plan, manifests) for name, value in planned.node.inputs.items()}


def _input(value: StageInputSpec, planned: PlannedNode, plan: Plan, manifests: Mapping[str, Manifest]) -> StageInput:
    match value:
        case ExternalSource(uri=uri):
            return ExternalInput(source=planned.sources[uri])
        case AliasOutput(alias=alias, artifact=artifact):
            output = plan.aliases[alias].output(artifact)
            assert output is not None, "the plan refuses an alias without a report where one is wanted"
            return output.manifest.as_input(output.output)
        case _:
            produced = produced_by(plan.nodes, value)
            assert produced is not None, "a stage runs when what it takes is chosen"
            key = plan.nodes[produced.stage].key
            assert key is not None, "a stage runs when the keys of what it takes are known"
            return manifests[key].as_input(produced.output)
