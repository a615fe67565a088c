"""Moments as records hold them and as people read them."""

from datetime import UTC, datetime


def now() -> str:
    """This moment, UTC, ISO 8601."""
    return datetime.now(UTC).isoformat()


def shown_time(moment: str) -> str:
    """For example `2026-11-29 21:43:05 UTC`."""
    return f"{moment[:19].replace('T', ' ')} UTC"
