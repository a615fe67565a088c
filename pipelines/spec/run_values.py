"""What `${run.id}` and `${run.date}` stand for, once there is a run."""

from collections.abc import Mapping
from dataclasses import replace

from pipelines.spec.nodes import Node, Pipeline, StageNode
from pipelines.spec.references import RunReference, parse_template


def with_run_values(pipeline: Pipeline, run_id: str) -> Pipeline:
    """The pipeline of a run: its id, and the day in UTC on which it started, stand where the file refers to them.

    Args:
        pipeline: as it was loaded.
        run_id: starts with the time of the run's start, as `20260131T174500Z`.
    """
    values = {"id": run_id, "date": f"{run_id[:4]}-{run_id[4:6]}-{run_id[6:8]}"}
    notify = pipeline.notify and replace(pipeline.notify, to=_filled(pipeline.notify.to, values))
    return replace(pipeline, notify=notify, nodes={id_: _node(node, values) for id_, node in pipeline.nodes.items()})


def _node(node: Node, values: Mapping[str, str]) -> Node:
    if not isinstance(node, StageNode) or not node.resources.env:
        return node
    env = {name: _filled(text, values) for name, text in node.resources.env.items()}
    return replace(node, resources=replace(node.resources, env=env))


def _filled(text: str, values: Mapping[str, str]) -> str:
    pieces = parse_template(text)
    return "".join(values[piece.name] if isinstance(piece, RunReference) else str(piece) for piece in pieces)
