import pytest

from stages.errors import UserError
from stages.store.conditional import ConditionalStore
from stages.store.layout import MARKER
from stages.store.marker import check_marker, ensure_marker
from stages.store.runs import write_plan


def test_the_first_run_marks_the_store_and_later_ones_leave_the_mark(store: ConditionalStore) -> None:
    write_plan(store, "weekly", "20260101T000000Z-1", b"{}")
    first = check_marker(store)
    write_plan(store, "weekly", "20260102T000000Z-1", b"{}")
    ensure_marker(store)
    assert check_marker(store) == first
    assert first.format == 1


def test_a_folder_without_the_mark_is_refused(store: ConditionalStore) -> None:
    with pytest.raises(UserError, match=r"\.store\.json: missing, so this may be no store"):
        check_marker(store)


def test_a_store_of_another_layout_is_refused(local: ConditionalStore) -> None:
    local.create(MARKER, b'{"format": 2, "created": "", "id": "x"}')
    with pytest.raises(UserError, match="format 2, this version knows 1"):
        check_marker(local)


def test_a_run_that_goes_on_keeps_its_first_plan(store: ConditionalStore) -> None:
    write_plan(store, "weekly", "20260101T000000Z-1", b'"first"')
    write_plan(store, "weekly", "20260101T000000Z-1", b'"second"')
    stored = store.get("v1/runs/weekly/2026/20260101T000000Z-1/plan.json")
    assert stored is not None
    assert stored.data == b'"first"'
