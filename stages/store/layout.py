"""Where everything is in a store; all paths are relative to it."""

from dataclasses import dataclass

MARKER = "v1/.store.json"
"""Says that this is a store."""
STAGES_FOLDER = "v1/stages"
RUNS_FOLDER = "v1/runs"
SALTS_FOLDER = "v1/salts"
ALIASES_FOLDER = "v1/aliases"
APPROVALS_FOLDER = "v1/approvals"


@dataclass(frozen=True)
class AttemptPaths:
    """The private folder of one attempt."""

    folder: str

    @property
    def record(self) -> str:
        """Where the attempt ran and how it ended."""
        return f"{self.folder}/attempt.json"

    @property
    def progress_folder(self) -> str:
        return f"{self.folder}/progress"

    def progress(self, step: int) -> str:
        """Folder of one resumable step."""
        return f"{self.progress_folder}/{step}"

    def progress_commit(self, step: int) -> str:
        """The record without which the step does not exist."""
        return f"{self.progress_folder}/{step}.commit.json"

    @property
    def outputs(self) -> str:
        return f"{self.folder}/out"

    def out(self, output: str) -> str:
        """Folder of one output."""
        return f"{self.outputs}/{output}"

    @property
    def metrics_folder(self) -> str:
        return f"{self.folder}/metrics"

    def metrics(self, n: int) -> str:
        """One segment of metric rows."""
        return f"{self.metrics_folder}/{n:06d}.jsonl"

    @property
    def kept_folder(self) -> str:
        """What the attempt left for whoever looks for a fault."""
        return f"{self.folder}/kept"

    @property
    def log_folder(self) -> str:
        return f"{self.folder}/log"

    def log(self, n: int) -> str:
        """One segment of what the attempt printed."""
        return f"{self.log_folder}/{n:06d}.txt"


@dataclass(frozen=True)
class StagePaths:
    """The folder of one stage identity."""

    kind: str
    key: str

    @property
    def folder(self) -> str:
        return f"{kind_folder(self.kind)}/{self.key}"

    @property
    def spec(self) -> str:
        """The identity payload that the key is the hash of."""
        return f"{self.folder}/spec.json"

    @property
    def lease(self) -> str:
        return f"{self.folder}/lease.json"

    @property
    def manifest(self) -> str:
        """The commit."""
        return f"{self.folder}/manifest.json"

    def bad_manifest(self, n: int) -> str:
        """What a quarantined manifest said."""
        return f"{self.folder}/manifest.bad-{n}.json"

    @property
    def attempts(self) -> str:
        return f"{self.folder}/attempts"

    def attempt(self, name: str) -> AttemptPaths:
        return AttemptPaths(f"{self.attempts}/{name}")


def kind_folder(kind: str) -> str:
    """Folder of all identities of a kind of stage."""
    return f"{STAGES_FOLDER}/{kind}"


def attempt_name(epoch: int, unique: str) -> str:
    """Sorts by epoch."""
    return f"{epoch:06d}-{unique}"


def attempt_epoch(name: str) -> int:
    """The epoch within an attempt's name."""
    return int(name.partition("-")[0])


def runs_folder(pipeline: str) -> str:
    """Folder of all runs of a pipeline."""
    return f"{RUNS_FOLDER}/{pipeline}"


def run_folder(pipeline: str, year: int, run_id: str) -> str:
    """Folder of one run."""
    return f"{runs_folder(pipeline)}/{year:04d}/{run_id}"


def salt_path(key: str) -> str:
    """What `--force` added to a stage's identity."""
    return f"{SALTS_FOLDER}/{key}.json"


def alias_path(name: str) -> str:
    """Where an alias points to."""
    return f"{ALIASES_FOLDER}/{name}.json"


def approval_path(gate_key: str) -> str:
    """What somebody decided at a gate."""
    return f"{APPROVALS_FOLDER}/{gate_key}.json"
