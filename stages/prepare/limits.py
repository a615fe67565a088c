"""Rows that are no use: too short, too long, or a preference between a reply and itself."""

from stages.engine.data.records import PreferenceRow, Record
from stages.prepare.config import LengthLimits
from stages.prepare.content import Content
from stages.prepare.tally import Reason


def why_left_out(record: Record, content: Content, limits: LengthLimits | None) -> Reason | None:
    """Why the record is left out, if it is."""
    if isinstance(record, PreferenceRow) and record.chosen == record.rejected:
        return "same_replies"
    if limits is None:
        return None
    if content.num_characters < limits.min_characters:
        return "too_short"
    too_many = limits.max_messages is not None and content.num_messages > limits.max_messages
    too_long = limits.max_characters is not None and content.num_characters > limits.max_characters
    return "too_long" if too_many or too_long else None
