"""A model's verdict on two replies: what it is asked, and what its answer says."""

import re
from collections.abc import Sequence

from stages.engine.data.records import Message

QUESTION = """\
Two assistants have replied to the same conversation. Decide which reply is the better one: the one that is more \
correct, that does what was asked, and that helps more. Neither its length nor its place here makes a reply better.

Conversation:
{conversation}

Reply A:
{first}

Reply B:
{second}

Give your reasons in a few sentences. Then end with a line that holds nothing but your verdict: [[A]] if reply A is \
better, [[B]] if reply B is better, [[C]] if they are equally good."""

_VERDICT = re.compile(r"\[\[([ABC])\]\]")
_SCORES = {"A": 1.0, "B": 0.0, "C": 0.5}


def question(messages: Sequence[Message], first: str, second: str) -> tuple[Message, ...]:
    """What the judge is asked about two replies to a conversation."""
    conversation = "\n\n".join(f"{message.role}: {message.content}" for message in messages)
    return (Message(role="user", content=QUESTION.format(conversation=conversation, first=first, second=second)),)


def verdict(answer: str) -> float | None:
    """How good the first reply is against the second: 1, 0, or 0.5 for a draw; none where the judge does not say.

    The last verdict counts: a judge may weigh others before.
    """
    found = _VERDICT.findall(answer)
    return _SCORES[found[-1]] if found else None


def win(as_first: float | None, as_second: float | None) -> float:
    """A reply's share of a win, judged once in each place.

    Args:
        as_first: the verdict on it against the other one, when it stands first.
        as_second: the verdict on the other one against it, when that stands first.

    Returns:
        The mean of both; a place without a verdict counts as a draw. A judge that always takes the first gives 0.5.
    """
    here = 0.5 if as_first is None else as_first
    there = 0.5 if as_second is None else 1.0 - as_second
    return (here + there) / 2
