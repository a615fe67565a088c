"""What a store holds of earlier work, as one plan looks at it: read once, and no more than is asked for."""

from stages.store.committed import CommittedStage, list_committed
from stages.store.conditional import ConditionalStore
from stages.store.layout import StagePaths
from stages.store.manifest import read_manifest, read_spec
from stages.store.records import UnreadableRecordError
from stages.store.runs import RunRecord, list_runs, read_run

RUNS_READ = 3
"""Earlier runs of the pipeline that are looked into."""


class History:
    """Earlier runs of a pipeline, and committed results of any."""

    def __init__(self, store: ConditionalStore, pipeline: str, profile: str | None) -> None:
        self._store = store
        self._pipeline = pipeline
        self._profile = profile
        self._committed: dict[str, list[CommittedStage]] = {}
        self._payloads: dict[tuple[str, str], bytes | None] = {}
        self._runs: list[RunRecord] | None = None

    def committed(self, kind: str) -> list[CommittedStage]:
        """The newest results of a kind, newest first."""
        if kind not in self._committed:
            self._committed[kind] = list_committed(self._store, kind)
            self._payloads |= {(kind, one.manifest.key): one.payload for one in self._committed[kind]}
        return self._committed[kind]

    def payload(self, kind: str, key: str) -> bytes | None:
        """The identity behind a key, or None if the store has none of this kind."""
        if (kind, key) not in self._payloads:
            self._payloads[kind, key] = read_spec(self._store, StagePaths(kind, key))
        return self._payloads[kind, key]

    def same_stage(self, stage_id: str, kind: str) -> list[str]:
        """Keys of committed results that the stage of this name had in earlier runs, best first.

        Runs with the same profile come first, and of those the newest.
        """
        stages = [stage for run in self._earlier_runs() for stage in run.stages]
        keys = dict.fromkeys(stage.key for stage in stages if (stage.id, stage.kind) == (stage_id, kind))
        return [key for key in keys if key is not None and self._is_committed(kind, key)]

    def _is_committed(self, kind: str, key: str) -> bool:
        known = any(one.manifest.key == key for one in self.committed(kind))
        return known or read_manifest(self._store, StagePaths(kind, key)) is not None

    def _earlier_runs(self) -> list[RunRecord]:
        if self._runs is None:
            newest = list_runs(self._store, self._pipeline)[-RUNS_READ:]
            found = [self._run(run_id) for run_id in reversed(newest)]
            records = [record for record in found if record is not None]
            self._runs = sorted(records, key=lambda record: record.profile != self._profile)
        return self._runs

    def _run(self, run_id: str) -> RunRecord | None:
        """A run; none if another version of Temper wrote it, which is no reason not to plan."""
        try:
            return read_run(self._store, self._pipeline, run_id)
        except UnreadableRecordError:
            return None
