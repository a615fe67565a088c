from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.spec.diff import Difference, Identities, Side, compare_results, compare_sides
from pipelines.spec.nodes import Pipeline, StageNode
from pipelines.spec.plan import make_plan
from pipelines.spec.planned import Plan
from stages.errors import UserError
from stages.store.layout import StagePaths
from stages.store.local import LocalStore
from stages.store.manifest import write_spec

Load = Callable[..., Pipeline]


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def side(plan: Plan) -> Side:
    return Side({node_id: one.key for node_id, one in plan.nodes.items() if isinstance(one.node, StageNode)})


def first(difference: Difference) -> tuple[str, str]:
    assert difference.first is not None
    return difference.first.stage, str(difference.first.cause)


@pytest.fixture
def two(load: Load, store: LocalStore) -> Callable[..., tuple[Plan, Plan]]:
    """The pipeline begun as it is, and with overrides."""

    def two(*overrides: str) -> tuple[Plan, Plan]:
        plans = make_plan(load(), store), make_plan(load(*overrides), store)
        for plan in plans:
            for planned in plan.nodes.values():
                if planned.payload is not None and planned.key is not None:
                    write_spec(store, StagePaths(planned.kind, planned.key), planned.payload)
        return plans

    return two


def test_two_runs_differ_first_where_a_setting_does_and_then_in_what_follows(
    two: Callable[..., tuple[Plan, Plan]], store: LocalStore
) -> None:
    before, after = two("stages.sft.with.num_steps=5")
    difference = compare_sides(Identities(store), side(before), side(after))
    assert [stage.stage for stage in difference.stages] == ["sft", "eval_sft"]
    assert first(difference) == ("sft", "with.num_steps: 4 → 5")
    assert difference.stages[1].cause is None
    assert compare_sides(Identities(store), side(before), side(before)).is_empty


def test_stages_that_only_one_run_has_are_named(two: Callable[..., tuple[Plan, Plan]], store: LocalStore) -> None:
    plan, _ = two()
    keys = side(plan).keys
    without = Side({stage: key for stage, key in keys.items() if stage != "eval_base"})
    assert compare_sides(Identities(store), side(plan), without).only_before == ("eval_base",)
    difference = compare_sides(Identities(store), without, side(plan))
    assert difference.only_after == ("eval_base",)
    assert not difference.is_empty
    assert difference.first is None


def test_a_stage_whose_key_is_not_known_yet_is_no_stage_that_is_missing(
    two: Callable[..., tuple[Plan, Plan]], store: LocalStore
) -> None:
    plan, _ = two()
    waiting = Side({**side(plan).keys, "eval_sft": None})
    for before, after in ((side(plan), waiting), (waiting, side(plan)), (waiting, waiting)):
        difference = compare_sides(Identities(store), before, after)
        assert difference.unknown == ("eval_sft",)
        assert difference.only_before == difference.only_after == difference.stages == ()


def test_a_plan_that_nobody_ran_compares_by_the_identities_that_it_brings(load: Load, store: LocalStore) -> None:
    plans = make_plan(load(), store), make_plan(load("stages.data.with.seed=8"), store)
    sides = [
        Side(side(plan).keys, {one.key: one.payload for one in plan.nodes.values() if one.key and one.payload})
        for plan in plans
    ]
    assert first(compare_sides(Identities(store), *sides)) == ("data", "with.seed: 7 → 8")
    unknown = compare_sides(Identities(store), side(plans[0]), side(plans[1]))
    assert unknown.first is not None
    assert (unknown.first.stage, unknown.first.cause) == ("data", None)


def test_two_results_differ_first_in_the_earliest_stage_that_they_were_made_from(
    two: Callable[..., tuple[Plan, Plan]], store: LocalStore
) -> None:
    before, after = two("stages.data.with.num_train=16", "stages.sft.with.num_steps=5")
    old, new = before.nodes["eval_sft"].key, after.nodes["eval_sft"].key
    assert old is not None
    assert new is not None
    difference = compare_results(Identities(store), old, new)
    assert [stage.stage for stage in difference.stages] == ["prepare", "sft", "evaluation"]
    assert first(difference) == ("prepare", "with.num_train: 8 → 16")
    assert str(difference.stages[1].cause) == "with.num_steps: 4 → 5"
    assert difference.stages[2].cause is None
    assert compare_results(Identities(store), old, old).is_empty


def test_a_key_is_found_by_its_beginning(two: Callable[..., tuple[Plan, Plan]], store: LocalStore) -> None:
    plan, _ = two()
    key = plan.nodes["sft"].key or ""
    assert Identities(store).find(key[:8]) == Identities(store).find(key) == key
    with pytest.raises(UserError, match="at least 8 of its characters"):
        Identities(store).find(key[:7])
    with pytest.raises(UserError, match="the store has no such key"):
        Identities(store).find("0" * 16)
    store.create(f"v1/stages/sft/{key[:10]}{'0' * 54}/spec.json", b"{}")
    with pytest.raises(UserError, match="2 keys begin so: write more of it"):
        Identities(store).find(key[:9])
