"""Where a result came from and what was made of it, by what the store holds and nothing else."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, JsonValue, RootModel

from stages.contract import (
    ARTIFACT_FILE,
    DatasetArtifact,
    ExternalInput,
    ModelArtifact,
    ReportArtifact,
    SourceRef,
    StoredInput,
    Strict,
)
from stages.store.conditional import ConditionalStore
from stages.store.manifest import Manifest
from stages.store.payload import PayloadInput
from stages.store.records import decode
from stages.store.survey import Survey, SurveyedStage

AnyArtifact = Annotated[ModelArtifact | DatasetArtifact | ReportArtifact, Field(discriminator="kind")]


class _ArtifactFile(RootModel[AnyArtifact]):
    """What `artifact.json` may hold."""


class Origin(Strict):
    """One input of a stage: an output of another stage, or a source from outside the store."""

    key: str | None = None
    output: str | None = None
    source: SourceRef | None = None


class TracedStage(Strict):
    """One stage as the store knows it. Of one that is not committed any more, what its identity tells."""

    kind: str
    key: str
    state: Literal["committed", "quarantined", "condemned", "swept", "absent"]
    version: int = 0
    rev: int = 1
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    """With digests in the place of sources."""
    sources: tuple[SourceRef, ...] = ()
    """What the settings and the inputs name outside the store."""
    inputs: dict[str, Origin] = Field(default_factory=dict)
    outputs: dict[str, AnyArtifact] = Field(default_factory=dict)
    created: str = ""
    """UTC, ISO 8601."""
    seconds: float = 0.0
    attempt: str = ""
    code: str | None = None
    """Revision of the code."""
    source_digest: str = ""
    packages: dict[str, str] = Field(default_factory=dict)
    host: str = ""


def trace_back(store: ConditionalStore, found: Survey, key: str) -> dict[str, TracedStage]:
    """A stage and all that it was made from, by key: the stage first, then nearer ones before farther ones."""
    traced: dict[str, TracedStage] = {}
    waiting = [key]
    while waiting:
        key = waiting.pop(0)
        if key not in traced:
            traced[key] = _trace(store, found.stages.get(key), key)
            waiting.extend(origin.key for origin in traced[key].inputs.values() if origin.key is not None)
    return traced


def trace_forward(store: ConditionalStore, found: Survey, start: Origin) -> dict[str, TracedStage]:
    """All committed stages that were made from an output of a stage or from a source, at any distance, by key.

    A start without `output` is every output of its stage; one with a source is whatever has its digest.
    """
    committed = {key: stage.committed for key, stage in found.stages.items() if stage.committed is not None}
    users: dict[str, list[str]] = {}
    for key, manifest in committed.items():
        for value in manifest.inputs.values():
            if isinstance(value, StoredInput):
                users.setdefault(value.key, []).append(key)
    waiting = [key for key, manifest in committed.items() if _takes(manifest, start)]
    traced: dict[str, TracedStage] = {}
    while waiting:
        key = waiting.pop(0)
        if key not in traced:
            traced[key] = _trace(store, found.stages[key], key)
            waiting.extend(users.get(key, []))
    return traced


def _takes(manifest: Manifest, start: Origin) -> bool:
    origins = [_taken(value) for value in manifest.inputs.values()]
    if start.source is not None:
        sources = [*manifest.sources, *(origin.source for origin in origins if origin.source is not None)]
        return any(source.digest == start.source.digest for source in sources)
    return any(origin.key == start.key and start.output in (None, origin.output) for origin in origins)


def _trace(store: ConditionalStore, stage: SurveyedStage | None, key: str) -> TracedStage:
    if stage is None:
        return TracedStage(kind="unknown", key=key, state="absent")
    traced = TracedStage(
        kind=stage.paths.kind,
        key=key,
        state=stage.manifest.content.state if stage.manifest else "absent",
        version=stage.payload.version,
        rev=stage.payload.rev,
        settings=stage.payload.settings,
        inputs={name: _origin(value) for name, value in stage.payload.inputs.items()},
    )
    return traced if stage.committed is None else _with_manifest(store, traced, stage.committed)


def _origin(value: PayloadInput) -> Origin:
    source = SourceRef(uri="", digest=value.digest) if value.digest is not None else None
    return Origin(key=value.key, output=value.output, source=source)


def _with_manifest(store: ConditionalStore, traced: TracedStage, manifest: Manifest) -> TracedStage:
    return traced.model_copy(
        update={
            "sources": manifest.sources,
            "inputs": {name: _taken(value) for name, value in manifest.inputs.items()},
            "outputs": dict(_artifacts(store, manifest)),
            "created": manifest.created,
            "seconds": manifest.seconds,
            "attempt": manifest.attempt,
            "code": manifest.provenance.git_revision,
            "source_digest": manifest.provenance.source_digest,
            "packages": manifest.provenance.packages,
            "host": manifest.provenance.host,
        }
    )


def _taken(value: StoredInput | ExternalInput) -> Origin:
    if isinstance(value, ExternalInput):
        return Origin(source=value.source)
    return Origin(key=value.key, output=value.output)


def _artifacts(store: ConditionalStore, manifest: Manifest) -> Iterator[tuple[str, AnyArtifact]]:
    """Descriptors of the outputs; one that is not there is left out, for this only looks."""
    for output in manifest.outputs:
        path = f"{manifest.output_folder(output)}/{ARTIFACT_FILE}"
        stored = store.get(path)
        if stored is not None:
            yield output, decode(_ArtifactFile, stored.data, store.location(path)).root
