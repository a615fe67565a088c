"""Rows of a dataset that cannot be used, as one error."""

from collections.abc import Sequence

from stages.errors import UserError

_NAMED = 3
"""Rows that the error names; of the others it gives the number."""


def check_refused(problems: Sequence[str], num_rows: int) -> None:
    """Checks that there are none.

    Args:
        problems: each row that cannot be used, with the reason.
        num_rows: of which these are some.

    Raises:
        UserError: there are some; the first are told, and all are counted.
    """
    if problems:
        more = f"; so {len(problems)} of {num_rows} rows cannot be used" if len(problems) > _NAMED else ""
        raise UserError("; ".join(problems[:_NAMED]) + more)
