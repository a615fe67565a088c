"""A store that stops answering while a stage is at work."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attempts import failures, is_running, outcomes

from pipelines.spec.nodes import Retry
from stages.errors import StorageError
from stages.store.lease import LeaseKeeper, LeaseTiming
from stages.store.local import LocalStore
from tasks.execute_stage import execute_stage
from tasks.stage_work import StageWork

MakeWork = Callable[..., StageWork]


class Unanswered(LocalStore):
    """Fails what an attempt writes of its lease, and how it ended, from its start on."""

    def __init__(self, root: Path, begun: Path) -> None:
        super().__init__(root)
        self._begun = begun

    def swap(self, path: str, data: bytes, generation: str) -> str:
        if self._begun.exists():
            raise StorageError("503 from the store")
        return super().swap(path, data, generation)


@pytest.mark.parametrize("retriable", [True, False])
def test_a_store_that_does_not_answer_ends_the_attempt_as_a_fault_of_the_storage(
    make_work: MakeWork, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, witness: Any, retriable: bool
) -> None:
    timing = LeaseTiming(ttl=1.0, beat=0.05, request=0.1)
    monkeypatch.setattr("tasks.attempt.LeaseKeeper", functools.partial(LeaseKeeper, timing=timing))
    pids = tmp_path / "pids"
    on = ("storage",) if retriable else ("infra",)
    retry = Retry(max=1, delay=(0.0,), jitter=0.0, on=on, preempted_max=0)
    work = make_work(num_steps=1000, step_seconds=0.05, pids=str(pids), changes={"retry": retry})
    store = Unanswered(tmp_path / "store", pids)
    (error,) = failures(dataclasses.replace(work, store=store), witness, 1)
    assert (error.cause, error.retriable) == ("storage", retriable)
    assert "could not renew its lease for 1 s: 503 from the store" in error.message
    assert not any(is_running(pid) for pid in pids.read_text().split())
    assert execute_stage(make_work(), witness).manifest.epoch == 2


class NoManifest(LocalStore):
    """Refuses the manifest, and if asked to every write after it."""

    def __init__(self, root: Path, nothing_else: bool) -> None:
        super().__init__(root)
        self._nothing_else = nothing_else
        self._failing = False

    def create(self, path: str, data: bytes) -> str:
        self._failing = self._failing or path.endswith("manifest.json")
        if path.endswith("manifest.json"):
            raise StorageError("503 from the store")
        return super().create(path, data)

    def swap(self, path: str, data: bytes, generation: str) -> str:
        if self._failing and self._nothing_else:
            raise StorageError("503 again")
        return super().swap(path, data, generation)


@pytest.mark.parametrize(("nothing_else", "outcome"), [(False, ("failed", "storage")), (True, ("running", ""))])
def test_a_store_that_fails_the_commit_is_the_attempts_recorded_end(
    make_work: MakeWork, tmp_path: Path, witness: Any, nothing_else: bool, outcome: tuple[str, str]
) -> None:
    work = dataclasses.replace(make_work(), store=NoManifest(tmp_path / "store", nothing_else))
    with pytest.raises(StorageError, match="503 from the store"):
        execute_stage(work, witness)
    assert outcomes(work) == [outcome]
    assert ("note: the end of the attempt was not recorded: 503 again" in witness.told) == nothing_else
