"""What passes between a pipeline and a stage: artifacts, settings, the request, the result, the context."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Protocol, TypeVar, runtime_checkable

from pydantic import Field, model_validator

from stages.strict import Strict
from stages.trackers import Tracking

T = TypeVar("T")


# --- settings -----------------------------------------------------------------------------------


class Role(StrEnum):
    """How a setting enters a stage's identity key; stored in the field's JSON schema under `x-role`."""

    EXECUTION = "execution"
    ADDED = "added"
    SOURCE = "source"


def Execution(default: T) -> T:  # noqa: N802
    """A setting that changes how a stage runs but not its result: never part of the key."""
    return Field(default, json_schema_extra={"x-role": Role.EXECUTION})


def Added(default: T) -> T:  # noqa: N802
    """A setting added after a release: left out of the key while it has its default."""
    return Field(default, json_schema_extra={"x-role": Role.ADDED})


SourceUri = Annotated[str, Field(min_length=1, json_schema_extra={"x-role": Role.SOURCE})]
"""A setting that names an external input: the key holds its content digest in place of its text."""


Seed = Annotated[int, Field(ge=0, lt=2**63)]
"""A setting that all randomness of a stage depends on: any number that generators and checkpoints hold."""


class StageConfigBase(Strict):
    """The settings of one stage kind; every field is typed, bounded and documented."""


# --- artifacts ----------------------------------------------------------------------------------


class SourceRef(Strict):
    """An external input: where it is and what its content is."""

    uri: str
    digest: str
    """Content digest as `algorithm:hex`, from `stages.sources`."""


class StoredBase(Strict):
    """A whole model that an earlier stage committed, with an adapter of a later stage over it."""

    stage: str
    """Kind of the stage that made it."""
    key: str
    output: str
    checksums: dict[str, str]
    """crc32c of each of its files: an adapter fits no other weights, not even of the same key."""


class Quantization(Strict):
    """How the linear layers of a frozen base's blocks are stored (QLoRA, arXiv 2305.14314)."""

    kind: Literal["nf4", "int8", "int4"]
    """Levels of a weight: 16 by the quantiles of a normal distribution, or evenly spaced ones in 8 or 4 bits."""
    tile_size: Annotated[int, Field(ge=1)] = 64
    """Inputs that share a scale; divides the number of inputs of every linear layer."""


class Adapter(Strict):
    """A low-rank adapter beside the descriptor, in `file`."""

    file: str
    rank: int
    alpha: float
    targets: tuple[str, ...]
    scaling: Literal["standard", "rank_stabilized"] = "standard"
    """Whether alpha is divided by the rank or by its square root."""
    quantization: Quantization | None = None
    """Of the base that the adapter was trained over; it is quantised alike wherever the adapter is used."""


class Artifact(Strict):
    """What an output folder holds: the descriptor stored in it as `artifact.json`."""


class ModelArtifact(Artifact):
    """A base model by source, and at most one adapter over it; or a whole model."""

    kind: Literal["model"] = "model"
    base: SourceRef | StoredBase
    """Where the weights are or, of a whole model, what they were made from."""
    adapter: Adapter | None = None
    whole: bool = False
    """Whether the folder itself holds the model, with its tokenizer, in the layout of Hugging Face."""
    head: str | None = None
    """File with the head of a reward model; a whole one has it among its weights."""

    @model_validator(mode="after")
    def _check_parts(self) -> "ModelArtifact":
        if self.whole and self.adapter is not None:
            raise ValueError("a whole model has no adapter")
        if self.whole and self.head is not None:
            raise ValueError("a whole model has its head among its weights")
        return self


RowsKind = Literal["problem", "conversation", "text", "preference", "labelled"]
"""What each row of a dataset is."""


class TopTokensInfo(Strict):
    """How a teacher scored the targets of a dataset."""

    num_top: int
    temperature: float


class DatasetArtifact(Artifact):
    """Rows in JSON lines, one object a line, in `file`."""

    kind: Literal["dataset"] = "dataset"
    file: str = "data.jsonl"
    num_rows: int
    rows: RowsKind = "problem"
    top_tokens: TopTokensInfo | None = None
    """Given where files beside the rows hold a teacher's likeliest tokens at each target."""


class ReportArtifact(Artifact):
    """Named numbers, and the per-sample records that they are the means of, keyed by `id`, in `samples_file`."""

    kind: Literal["report"] = "report"
    metrics: dict[str, float]
    intervals: dict[str, tuple[float, float]] = Field(default_factory=dict)
    """95% intervals of metrics, low and high."""
    samples_file: str | None = None
    num_samples: int = 0


ARTIFACT_FILE = "artifact.json"


# --- request and result -------------------------------------------------------------------------


class FileEntry(Strict):
    """One stored file as its manifest lists it; `path` is relative to the folder that the list belongs to."""

    path: str
    size: int
    crc32c: str
    """Eight hexadecimal digits."""
    generation: str
    """Opaque version of the stored object."""


class StoredInput(Strict):
    """An output of another stage, committed in the store."""

    kind: Literal["stored"] = "stored"
    stage: str
    """Kind of the producing stage."""
    key: str
    output: str
    folder: str
    """Store path of the output's folder."""
    files: tuple[FileEntry, ...]


class ExternalInput(Strict):
    """A source outside the store, such as a published base model."""

    kind: Literal["external"] = "external"
    source: SourceRef


StageInput = Annotated[StoredInput | ExternalInput, Field(discriminator="kind")]


class ProgressPoint(Strict):
    """A committed step of some attempt of this key, from which a stage may resume."""

    attempt: str
    step: int


class ClusterRequest(Strict):
    """The place of a process among those that run a stage together."""

    coordinator: str
    """Address at which process 0 brings them together, as host:port."""
    num_processes: int
    process_id: int
    """From 0; process 0 leads: it alone commits, and writes metrics and outputs."""


class Saving(Strict):
    """When progress is saved beside a stage's own cadence, and how much of it is kept."""

    every_seconds: float = 600.0
    """A step that ends so long after the last save is saved too."""
    keep_last: Annotated[int, Field(ge=1)] = 2
    """The newest steps that an attempt keeps; the one before the newest is there to fall back on."""
    keep_every: Annotated[int, Field(ge=1)] | None = None
    """Steps that are multiples of it stay too."""


class StageRequest(Strict):
    """All that a stage process needs to run one attempt; the only argument of `python -m stages`."""

    stage_id: str
    """The stage's name in the pipeline; for logs only."""
    kind: str
    version: int
    key: str
    config: str
    """The validated settings as JSON text."""
    inputs: dict[str, StageInput]
    sources: tuple[SourceRef, ...] = ()
    """What the settings name as sources, with the content that went into the key."""
    store: str
    """The store's URI."""
    attempt: str
    """`{epoch:06d}-{uuid}`; names this attempt's private folder in the store."""
    epoch: int
    resume: tuple[ProgressPoint, ...]
    """Committed points, best first."""
    saving: Saving = Saving()
    """When progress is saved and how much of it is kept."""
    tracking: Tracking | None = None
    """Where metrics are shown beside the store, if anywhere."""
    secrets: dict[str, str] = Field(default_factory=dict)
    """Environment variables to the `secret://name` that only the process itself may look up."""
    scratch: str
    """A local folder that belongs to this attempt alone."""
    cache: str
    """A local folder shared between attempts: downloaded sources and compiled programs."""
    beat_fd: int | None = None
    """File descriptor on which beats are written as JSON lines."""
    cluster: ClusterRequest | None = None
    """Given where several processes run the stage."""

    @property
    def leads(self) -> bool:
        """Whether this process speaks for the stage: one that is alone does."""
        return self.cluster is None or self.cluster.process_id == 0


class Beat(Strict):
    """A sign of life with the progress so far."""

    step: int
    total: int
    numbers: dict[str, float]
    """Shown to the user, for example `loss`, `reward`, `tokens_per_second`."""


class CorruptInput(Strict):
    """The committed output whose bytes were found to differ from its manifest."""

    stage: str
    key: str


class StageResult(Strict):
    """What a stage process leaves behind in `{scratch}/result.json`."""

    outcome: Literal["done", "user_error", "bug", "oom", "storage", "preempted"]
    message: str = ""
    corrupt: CorruptInput | None = None
    outputs: dict[str, tuple[FileEntry, ...]] = Field(default_factory=dict)
    """Uploaded files of each output, relative to the output's folder."""
    numbers: dict[str, float] = Field(default_factory=dict)
    """The last numbers of the run, for tables."""
    first_step: int | None = None
    """The first step that this attempt executed."""
    last_step: int | None = None


RESULT_FILE = "result.json"


# --- what a running stage may use ---------------------------------------------------------------


@runtime_checkable
class ProgressArea(Protocol):
    """The attempt's own folder of resumable steps, and the committed ones of earlier attempts."""

    def candidates(self) -> Sequence[ProgressPoint]:
        """Committed points to resume from, best first."""
        ...

    def uri(self, point: ProgressPoint) -> str:
        """Folder of a committed point, as a local path or `gs://` URI."""
        ...

    def new_uri(self, step: int) -> str:
        """Folder that this attempt writes `step` to."""
        ...

    def save_due(self) -> bool:
        """Whether the last save, or the start, is so long ago that the step just done should be saved."""
        ...

    def commit(self, step: int) -> None:
        """Record that `step` is completely written. Only after this does the step exist."""
        ...


@runtime_checkable
class StageContext(Protocol):
    """Everything a stage's `run` may touch outside its own process."""

    @property
    def scratch(self) -> Path:
        """A local folder for anything temporary."""
        ...

    @property
    def progress(self) -> ProgressArea: ...

    def has_input(self, name: str) -> bool:
        """Whether an optional input was given."""
        ...

    def input(self, name: str) -> StageInput:
        """The input as requested."""
        ...

    def input_dir(self, name: str) -> Path:
        """Local folder of a stored input, every file checked against its manifest.

        Raises:
            CorruptArtifactError: a file's bytes are not the committed ones.
        """
        ...

    def base_dir(self, base: StoredBase) -> Path:
        """Local folder of the whole model that an input's adapter lies over, every file checked.

        Raises:
            UserError: it is not in the store any more, or was made again with other bytes.
            CorruptArtifactError: a file's bytes are not the committed ones.
        """
        ...

    def source(self, uri: str) -> SourceRef:
        """A source that the settings name, with the content that went into the key."""
        ...

    def source_path(self, source: SourceRef) -> Path:
        """Local file or folder of an external source whose content matches its digest."""
        ...

    def cache_dir(self, name: str) -> Path:
        """A local folder that all attempts share, for what can be computed again; files in it are replaced whole."""
        ...

    def output_dir(self, name: str) -> Path:
        """Local folder whose files become the output when the stage returns."""
        ...

    def beat(self, step: int, total: int, numbers: Mapping[str, float]) -> None:
        """Report that `step` of `total` steps are done."""
        ...

    def log_metrics(self, step: int, numbers: Mapping[str, float]) -> None:
        """Append one row of `group/name` numbers."""
        ...

    def keep(self, name: str, content: bytes) -> str:
        """Store a file beside the attempt's logs, for whoever looks for a fault, and say where it is."""
        ...

    def should_stop(self) -> bool:
        """Whether the stage was asked to stop: save, then raise `PreemptedError`."""
        ...
