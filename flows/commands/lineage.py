"""`temper lineage`: what a result was made from, or what was made of it."""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from flows.commands.arguments import add_file, load
from flows.commands.results import RESULT_HELP, find_result
from stages.contract import Artifact, DatasetArtifact, ModelArtifact, ReportArtifact, SourceRef, StoredBase
from stages.errors import UserError
from stages.store.conditional import ConditionalStore, open_store
from stages.store.lineage import Origin, TracedStage, trace_back, trace_forward
from stages.store.moments import shown_time
from stages.store.survey import Survey, survey

KEY_SHOWN = 16


def add_arguments(parser: ArgumentParser) -> None:
    """The file, the result, and the direction."""
    add_file(parser)
    parser.add_argument("target", metavar="RESULT", help=f"{RESULT_HELP}; with --forward the digest of a source too")
    parser.add_argument(
        "--forward", action="store_true", help="show what was made of it instead of what it was made from"
    )
    parser.add_argument("--json", action="store_true", help="print the stages as JSON")


def run(arguments: Namespace) -> int:
    """Print the stages on the way.

    Raises:
        UserError: the result is not in the store.
    """
    pipeline = load(arguments)
    store = open_store(pipeline.store)
    found = survey(store)
    target = find_result(pipeline, store, found, arguments.target)
    stages = _trace(store, found, target, arguments.forward)
    if arguments.json:
        rows = [json.loads(stage.model_dump_json()) for stage in stages.values()]
        print(json.dumps({"target": json.loads(target.model_dump_json()), "stages": rows}, indent=2))
    else:
        print("\n".join(_forward(target, stages) if arguments.forward else _back(target.key or "", stages)))
    return 0


def _trace(store: ConditionalStore, found: Survey, target: Origin, forward: bool) -> dict[str, TracedStage]:
    if forward:
        return trace_forward(store, found, target)
    if target.key is None:
        raise UserError("a source has no lineage: give --forward to see what was made of it")
    if target.key not in found.stages:
        raise UserError(f"{target.key[:KEY_SHOWN]}: not in the store {store.uri}")
    return trace_back(store, found, target.key)


def _forward(target: Origin, stages: Mapping[str, TracedStage]) -> Iterator[str]:
    yield f"{_describe_origin(target, {})}: {len(stages) or 'no'} results were made of it"
    for stage in stages.values():
        inputs = ", ".join(f"{name} = {_describe_origin(origin, stages)}" for name, origin in stage.inputs.items())
        yield f"  {_title(stage)}"
        yield f"    from {inputs}"


def _back(key: str, stages: Mapping[str, TracedStage]) -> Iterator[str]:
    shown: set[str] = set()
    yield from _tree(key, stages, shown, "")


def _tree(key: str, stages: Mapping[str, TracedStage], shown: set[str], indent: str) -> Iterator[str]:
    stage = stages[key]
    if key in shown:
        yield f"{_title(stage)}: see above"
        return
    shown.add(key)
    yield _title(stage)
    details = list(_details(stage))
    yield from (f"{indent}│  {line}" if stage.inputs else f"{indent}   {line}" for line in details)
    for number, (name, origin) in enumerate(stage.inputs.items(), 1):
        is_last = number == len(stage.inputs)
        lead, below = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
        if origin.key is None:
            yield f"{indent}{lead}{name}: {_describe_origin(origin, stages)}"
            continue
        first, *rest = _tree(origin.key, stages, shown, indent + below)
        yield f"{indent}{lead}{name}: {origin.output} of {first}"
        yield from rest


def _title(stage: TracedStage) -> str:
    state = f"committed {shown_time(stage.created)}" if stage.created else stage.state
    return f"{stage.kind} {stage.key[:KEY_SHOWN]}, {state}"


def _details(stage: TracedStage) -> Iterator[str]:
    for name, artifact in stage.outputs.items():
        yield f"{name}: {_describe_artifact(artifact)}"
    yield f"settings: {' '.join(_leaves(stage.settings, '')) or 'not recorded'}"
    for source in stage.sources:
        yield f"source: {_describe_source(source)}"
    if stage.created:
        digest = f", sources {stage.source_digest[:KEY_SHOWN]}" if stage.source_digest else ""
        yield f"code: {stage.code or 'no repository'}{digest}"
        yield f"version {stage.version}, attempt {stage.attempt.partition('-')[0]} on {stage.host}"


def _describe_artifact(artifact: Artifact) -> str:
    match artifact:
        case DatasetArtifact(num_rows=rows):
            return f"{rows:,} rows"
        case ModelArtifact(base=base, whole=True):
            return f"whole model made from {_describe_base(base)}"
        case ModelArtifact(base=base, adapter=None):
            return f"base {_describe_base(base)}"
        case ModelArtifact(base=base, adapter=adapter) if adapter is not None:
            return f"adapter of rank {adapter.rank} on base {_describe_base(base)}"
        case ReportArtifact(metrics=metrics):
            return " ".join(f"{name} {value:.4g}" for name, value in sorted(metrics.items()))
        case _:
            raise AssertionError(f"{type(artifact).__name__} is no artifact that stages make")


def _describe_origin(origin: Origin, stages: Mapping[str, TracedStage]) -> str:
    if origin.source is not None:
        return _describe_source(origin.source)
    assert origin.key is not None
    kind = f"{stages[origin.key].kind} " if origin.key in stages else ""
    return f"{origin.output or 'outputs'} of {kind}{origin.key[:KEY_SHOWN]}"


def _describe_base(base: SourceRef | StoredBase) -> str:
    if isinstance(base, StoredBase):
        return f"{base.output} of {base.stage} {base.key[:KEY_SHOWN]}"
    return _describe_source(base)


def _describe_source(source: SourceRef) -> str:
    return f"{source.uri} ({source.digest})" if source.uri else source.digest


def _leaves(settings: Mapping[str, JsonValue], prefix: str) -> Iterator[str]:
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}={json.dumps(value)}"
