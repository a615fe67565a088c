import pytest
from hypothesis import given
from hypothesis import strategies as st
from prefect._vendor.croniter import croniter

from pipelines.spec.cron import check_cron


@pytest.mark.parametrize(
    "text",
    ["0 2 * * SUN", "*/5 * * * *", "0 0 1-15/2 jan-MAR 1,3,5", "30 6,18 * * mon-fri", "0 0 31 2 1", "0 0 29 2 *"],
)
def test_an_expression_of_five_fields_is_taken(text: str) -> None:
    assert check_cron(text) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 2 * *", "expected five fields: minute, hour, day of the month, month, day of the week"),
        ("@daily", "expected five fields"),
        ("0 0 0 2 * * *", "expected five fields"),
        ("60 * * * *", "minute: expected 0 to 59, not `60`"),
        ("0 24 * * *", "hour: expected 0 to 23, not `24`"),
        ("0 0 0 * *", "day of the month: expected 1 to 31, not `0`"),
        ("0 0 * foo *", "month: expected 1 to 12 or JAN to DEC, not `foo`"),
        ("0 0 * * SAN", "day of the week: expected 0 to 7 or SUN to SAT, not `SAN`"),
        ("0 22-4 * * *", "hour: the range `22-4` ends before it starts"),
        ("*/0 * * * *", "minute: steps are of a range"),
        ("5/2 * * * *", "minute: steps are of a range, such as */2 or 1-9/2, not `5/2`"),
        ("x * * * *", "minute: expected `*`, a number, a range such as 1-5 or steps such as */2, not `x`"),
        ("0 0 30 2 *", "never fires: no such month has a day 30"),
        ("0 0 31 4,6 *", "never fires: no such month has a day 31"),
    ],
)
def test_what_never_fires_or_is_no_expression_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        check_cron(text)
    assert str(raised.value).startswith(message)


numbers = st.integers(0, 61).map(str)
parts = st.one_of(
    st.just("*"),
    numbers,
    st.tuples(numbers, numbers).map("-".join),
    st.integers(1, 9).map(lambda step: f"*/{step}"),
    st.sampled_from(["MON", "fri", "JAN", "dec"]),
)
fields = st.lists(parts, min_size=1, max_size=3).map(",".join)


@given(st.tuples(fields, fields, fields, fields, fields).map(" ".join))
def test_all_that_is_taken_is_a_schedule_for_the_server_too(text: str) -> None:
    try:
        check_cron(text)
    except ValueError:
        return
    assert isinstance(croniter(text, 0).get_next(float), float)
