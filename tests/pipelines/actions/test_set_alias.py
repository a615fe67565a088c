import pytest

from pipelines.actions.set_alias import CommittedOutput, point_alias
from stages.errors import StorageError
from stages.store.aliases import AliasMovedError, read_alias
from stages.store.conditional import ConditionalStore
from stages.store.manifest import Manifest
from stages.store.memory import MemoryStore
from stages.store.provenance import Provenance
from stages.store.records import encode

NOWHERE = Provenance(argv=(), git_revision=None, packages={}, host="here", python="3", system="test")


def committed(store: ConditionalStore, kind: str, letter: str) -> Manifest:
    manifest = Manifest(
        stage=kind,
        key=letter * 64,
        version=1,
        attempt="000001-a",
        epoch=1,
        outputs={},
        numbers={},
        inputs={},
        created="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        provenance=NOWHERE,
    )
    store.create(manifest.paths.manifest, encode(manifest))
    return manifest


@pytest.fixture
def store() -> ConditionalStore:
    return MemoryStore("memory://aliases")


def test_an_alias_moves_and_remembers_where_it_was(store: ConditionalStore) -> None:
    first, second = committed(store, "sft", "a"), committed(store, "grpo", "b")
    report = CommittedOutput(committed(store, "evaluation", "c"), "report")
    said = point_alias(store, "prod", CommittedOutput(first, "checkpoint"), None, "run-1")
    assert said == f"prod points to sft {'a' * 16}"
    said = point_alias(store, "prod", CommittedOutput(second, "checkpoint"), report, "run-2")
    assert said == f"prod points to grpo {'b' * 16}, before to sft {'a' * 16}"
    found = read_alias(store, "prod")
    assert found is not None
    record = found[0]
    assert (record.checkpoint.key, record.checkpoint.output, record.previous) == ("b" * 64, "checkpoint", "a" * 64)
    assert record.report is not None
    assert (record.report.key, record.set_by) == ("c" * 64, "run-2")


def test_setting_an_alias_again_writes_nothing(store: ConditionalStore) -> None:
    checkpoint = CommittedOutput(committed(store, "sft", "a"), "checkpoint")
    point_alias(store, "prod", checkpoint, None, "run-1")
    before = read_alias(store, "prod")
    assert point_alias(store, "prod", checkpoint, None, "run-2") == f"prod points to sft {'a' * 16} already"
    assert read_alias(store, "prod") == before


def test_an_alias_that_is_set_again_after_its_result_was_made_again_remembers_the_one_before(
    store: ConditionalStore,
) -> None:
    first, second = committed(store, "sft", "a"), committed(store, "grpo", "b")
    for manifest in (first, second):
        point_alias(store, "prod", CommittedOutput(manifest, "checkpoint"), None, "run-1")
    stored = store.get(second.paths.manifest)
    assert stored is not None
    store.swap(second.paths.manifest, stored.data, stored.generation)
    point_alias(store, "prod", CommittedOutput(second, "checkpoint"), None, "run-2")
    found = read_alias(store, "prod")
    assert found is not None
    assert (found[0].set_by, found[0].previous) == ("run-2", first.key)


def test_an_alias_that_another_run_moves_meanwhile_is_left_to_it(
    store: ConditionalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = (CommittedOutput(committed(store, "sft", letter), "checkpoint") for letter in "ab")
    swap = store.create

    def overtaken(path: str, data: bytes) -> str:
        monkeypatch.setattr(store, "create", swap)
        point_alias(store, "prod", other, None, "run-other")
        return swap(path, data)

    monkeypatch.setattr(store, "create", overtaken)
    with pytest.raises(AliasMovedError, match="run-other"):
        point_alias(store, "prod", mine, None, "run-mine")
    found = read_alias(store, "prod")
    assert found is not None
    assert found[0].checkpoint.key == "b" * 64


def test_a_result_that_is_gone_gets_no_alias(store: ConditionalStore) -> None:
    gone = committed(store, "sft", "a")
    store.delete(gone.paths.manifest)
    with pytest.raises(StorageError, match="is gone"):
        point_alias(store, "prod", CommittedOutput(gone, "checkpoint"), None, "run-1")
    assert read_alias(store, "prod") is None
