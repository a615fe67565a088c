import pytest

from stages.errors import StorageError, UserError
from stages.store.aliases import AliasMovedError, AliasRecord, AliasTarget, list_aliases, read_alias, set_alias
from stages.store.conditional import ConditionalStore, PreconditionFailed
from stages.store.memory import MemoryStore


def alias(key: str, name: str = "prod", previous: str | None = None, by: str = "run-1") -> AliasRecord:
    return AliasRecord(
        name=name,
        checkpoint=AliasTarget(stage="grpo", key=key * 64, output="checkpoint", manifest_generation="7"),
        report=AliasTarget(stage="evaluation", key="e" * 64, output="report", manifest_generation="8"),
        previous=previous,
        set_by=by,
        set_at="2026-01-01T00:00:00+00:00",
    )


def test_an_alias_is_none_until_set_and_then_moves_on_its_generation(store: ConditionalStore) -> None:
    assert read_alias(store, "prod") is None
    first = set_alias(store, alias("a"), None)
    assert read_alias(store, "prod") == (alias("a"), first)
    second = set_alias(store, alias("b", previous="a" * 64), first)
    assert read_alias(store, "prod") == (alias("b", previous="a" * 64), second)


def test_a_late_setter_is_told_where_the_alias_points_and_where_it_did(store: ConditionalStore) -> None:
    first = set_alias(store, alias("a"), None)
    set_alias(store, alias("b", previous="a" * 64, by="run-2"), first)
    with pytest.raises(AliasMovedError, match=r"not moved to grpo cccc.*points to grpo bbbb.*run-2.*key aaaa"):
        set_alias(store, alias("c", previous="a" * 64), first)
    with pytest.raises(AliasMovedError, match=r"points to grpo bbbb.*pointed to nothing when"):
        set_alias(store, alias("c"), None)
    moved = read_alias(store, "prod")
    assert moved is not None
    assert moved[0].set_by == "run-2"


def test_an_alias_that_was_never_set_cannot_be_swapped(store: ConditionalStore) -> None:
    generation = set_alias(store, alias("a", "other"), None)
    with pytest.raises(AliasMovedError, match="is gone"):
        set_alias(store, alias("a"), generation)


class LosesAnswers(MemoryStore):
    """Each write takes effect, and its writer hears of a refusal."""

    def create(self, path: str, data: bytes) -> str:
        super().create(path, data)
        raise PreconditionFailed("no answer")

    def swap(self, path: str, data: bytes, generation: str) -> str:
        super().swap(path, data, generation)
        raise PreconditionFailed("no answer")


def test_a_write_whose_answer_was_lost_counts_as_done() -> None:
    store = LosesAnswers("memory://alias")
    first = set_alias(store, alias("a"), None)
    second = set_alias(store, alias("b", previous="a" * 64), first)
    assert read_alias(store, "prod") == (alias("b", previous="a" * 64), second)


def test_aliases_are_listed_by_name(store: ConditionalStore) -> None:
    assert list_aliases(store) == []
    for name in ("prod", "canary", "v1.2_x"):
        set_alias(store, alias("a", name), None)
    assert [record.name for record in list_aliases(store)] == ["canary", "prod", "v1.2_x"]


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "-x", "prod\n", "grün"])
def test_a_name_that_is_no_plain_word_is_refused(local: ConditionalStore, name: str) -> None:
    with pytest.raises(UserError, match="names no alias"):
        read_alias(local, name)
    with pytest.raises(UserError, match="names no alias"):
        set_alias(local, alias("a", name), None)


def test_a_damaged_alias_is_an_error_that_names_it(local: ConditionalStore) -> None:
    local.create("v1/aliases/prod.json", b"{}")
    with pytest.raises(StorageError, match=r"aliases/prod\.json: no AliasRecord"):
        read_alias(local, "prod")
