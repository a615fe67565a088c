from concurrent.futures import ThreadPoolExecutor

from stages.store.approvals import Approval, list_approvals, read_approval, write_approval
from stages.store.conditional import ConditionalStore

GATE = "9" * 64


def decision(approved: bool, by: str = "ann", manifest: str = "m1", gate_key: str = GATE) -> Approval:
    return Approval(
        gate_key=gate_key,
        pipeline="weekly",
        gate="approve",
        approved=approved,
        by=by,
        at="2026-01-01T00:00:00+00:00",
        comment="looks right",
        stages={"grpo": "a" * 64},
        manifests={"grpo": manifest},
    )


def test_a_decision_is_none_until_made_and_then_read_back(store: ConditionalStore) -> None:
    assert read_approval(store, GATE) is None
    assert write_approval(store, decision(True)) == decision(True)
    assert read_approval(store, GATE) == decision(True)


def test_the_first_of_equal_decisions_stands(store: ConditionalStore) -> None:
    write_approval(store, decision(True, by="ann"))
    assert write_approval(store, decision(True, by="bob")).by == "ann"


def test_a_contrary_decision_and_one_about_other_results_replace_it(store: ConditionalStore) -> None:
    write_approval(store, decision(True))
    write_approval(store, decision(False, by="bob"))
    assert read_approval(store, GATE) == decision(False, by="bob")
    write_approval(store, decision(False, by="cid", manifest="m2"))
    assert read_approval(store, GATE) == decision(False, by="cid", manifest="m2")


def test_of_decisions_at_once_one_stands_and_all_see_it(store: ConditionalStore) -> None:
    with ThreadPoolExecutor(6) as pool:
        standing = list(pool.map(lambda n: write_approval(store, decision(True, by=f"p{n}")), range(6)))
    assert {approval.by for approval in standing} == {read_approval(store, GATE).by}  # type: ignore[union-attr]


def test_decisions_are_listed(store: ConditionalStore) -> None:
    assert list_approvals(store) == []
    write_approval(store, decision(True))
    write_approval(store, decision(False, gate_key="8" * 64))
    assert [approval.gate_key[0] for approval in list_approvals(store)] == ["8", "9"]
