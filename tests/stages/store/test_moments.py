from datetime import UTC, datetime

from stages.store.moments import now, shown_time


def test_a_moment_is_in_utc_and_shown_to_the_second() -> None:
    assert shown_time("2026-11-29T21:43:05.123456+00:00") == "2026-11-29 21:43:05 UTC"
    moment = datetime.fromisoformat(now())
    assert moment.utcoffset() == UTC.utcoffset(None)
    assert abs((datetime.now(UTC) - moment).total_seconds()) < 60
