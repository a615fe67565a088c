"""One stage, from lease to manifest, on a bucket whose service fails at random."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

from stages.store.conditional import ConditionalStore, open_store
from stages.store.manifest import check_files
from stages.store.segments import read_metrics
from tasks.execute_stage import execute_stage
from tasks.observer import Observers
from tasks.stage_work import StageWork

MakeWork = Callable[..., StageWork]
FaultyStorage = Callable[[int, float], AbstractContextManager[None]]


@pytest.fixture
def store(gcs_store_uri: str) -> ConditionalStore:
    return open_store(gcs_store_uri)


def test_a_stage_is_committed_whole_through_faults_and_reused(
    make_work: MakeWork, store: ConditionalStore, faulty_storage: FaultyStorage
) -> None:
    # The probe saves to local disks only.
    work = make_work(num_steps=3, save_every_steps=100)
    with faulty_storage(11, 0.1):
        done = execute_stage(replace(work, store=open_store(store.uri)), Observers())
    assert done.state == "Committed"
    assert check_files(store, done.manifest, deep=True) == []
    assert [row.step for row in read_metrics(store, work.paths)] == [1, 2, 3]
    assert execute_stage(work, Observers()).state == "Reused"
