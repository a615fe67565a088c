import time

import pytest

from stages.contract import FileEntry
from stages.store.committed import list_committed
from stages.store.conditional import ConditionalStore, StoredObject
from stages.store.layout import StagePaths
from stages.store.manifest import Manifest, quarantine, write_spec
from stages.store.memory import MemoryStore
from stages.store.provenance import Provenance
from stages.store.records import encode

PROVENANCE = Provenance(argv=(), git_revision=None, packages={}, host="", python="", system="")


def commit(store: ConditionalStore, name: str, number: int, kind: str = "sft") -> StagePaths:
    paths = StagePaths(kind, name * 64)
    write_spec(store, paths, f'{{"name":"{name}"}}'.encode())
    manifest = Manifest(
        stage=kind,
        key=paths.key,
        version=1,
        attempt="000001-a",
        epoch=1,
        outputs={"checkpoint": (FileEntry(path="w", size=1, crc32c="00000000", generation="1"),)},
        numbers={},
        inputs={},
        created=f"2026-01-{number:02d}T00:00:00+00:00",
        seconds=1.0,
        provenance=PROVENANCE,
    )
    store.create(paths.manifest, encode(manifest))
    return paths


def names(store: ConditionalStore, newest: int = 50) -> str:
    return "".join(stage.manifest.key[0] for stage in list_committed(store, "sft", newest))


def test_the_committed_stages_of_a_kind_come_newest_first_with_what_they_are(store: ConditionalStore) -> None:
    assert list_committed(store, "sft") == []
    for number, name in enumerate("abc", 1):
        commit(store, name, number)
    commit(store, "d", 4, kind="grpo")
    assert names(store) == "cba"
    assert list_committed(store, "sft")[0].payload == b'{"name":"c"}'


def test_what_is_not_committed_is_left_out(local: ConditionalStore) -> None:
    write_spec(local, StagePaths("sft", "e" * 64), b"{}")
    for number, name in enumerate("ab", 1):
        commit(local, name, number)
    quarantine(local, StagePaths("sft", "b" * 64), "damaged")
    assert names(local) == "a"


class CountsReads(MemoryStore):
    reads = 0

    def get(self, path: str) -> StoredObject | None:
        self.reads += 1
        return super().get(path)


@pytest.mark.parametrize("newest", [1, 3])
def test_no_more_is_read_than_asked_for(newest: int) -> None:
    store = CountsReads("memory://counts")
    for number, name in enumerate("abcdef", 1):
        commit(store, name, number)
        time.sleep(0.002)
    assert names(store, newest) == "fedcba"[:newest]
    assert store.reads == 2 * newest
