"""All rows of one source that are good: read, converted, checked, and put on the local disk."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from stages.contract import StageContext
from stages.engine.data.formats.fields import BadRowError, Columns
from stages.engine.data.formats.formats import FORMATS, Format, convert, find_format
from stages.engine.data.raw.row import RawRow
from stages.engine.data.records import RECORDS, Record, Row
from stages.errors import UserError
from stages.prepare.config import DataSource, PrepareConfig
from stages.prepare.content import Content, Sameness, content_of
from stages.prepare.kinds import as_record, with_system
from stages.prepare.limits import why_left_out
from stages.prepare.pulse import Pulse
from stages.prepare.reading import read_rows
from stages.prepare.spool import Spool
from stages.prepare.tally import Tally

_SHOWN = 5
"""Bad rows that are told before a stage that may not skip them ends."""
_LOOKED_AT = 10_000
"""Rows after the first bad one among which more are looked for."""


@dataclass
class SourceRows:
    """Rows of a source.

    Attributes:
        entry: the source.
        spool: its rows.
        record: what they are.
        tally: what was left out.
    """

    entry: DataSource
    spool: Spool
    record: type[Record]
    tally: Tally = field(default_factory=Tally)


class Collector:
    """Reads the rows of one source."""

    def __init__(self, context: StageContext, config: PrepareConfig, entry: DataSource, pulse: Pulse) -> None:
        self._config = config
        self._entry = entry
        self._pulse = pulse
        self._columns = Columns(entry.columns)
        self._rows = read_rows(context, entry, config.seed)
        self._tally = Tally()
        self._format: Format | None = None if entry.format == "auto" else FORMATS[entry.format]
        self._bad: list[str] = []

    def collect(self, spool: Spool, num_problems: int | None) -> SourceRows:
        """All rows, or the first problems that differ from each other.

        Raises:
            UserError: the source cannot be read, its format is not known, or rows are bad and may not be skipped.
            PreemptedError: the stage was asked to stop.
        """
        seen: set[int] = set()
        for row, record, content in self._records():
            whole = spool.add(record, content, row.place, self._sameness(record))
            if num_problems is not None and self._format is FORMATS["problem"]:
                seen.add(whole)
                if len(seen) == num_problems:
                    break
        self._refuse_bad()
        wanted = self._config.rows
        form = self._format
        if form is None:
            raise UserError(f"{self._entry.source} has no rows")
        return SourceRows(self._entry, spool, form.record if wanted is None else RECORDS[wanted], self._tally)

    def _records(self) -> Iterator[tuple[RawRow, Record, Content]]:
        since_bad = 0
        for row in self._rows:
            self._tally.num_read += 1
            self._pulse.tick()
            since_bad += bool(self._bad)
            if since_bad > _LOOKED_AT:
                self._refuse_bad()
            try:
                record = self._convert(row)
            except BadRowError as error:
                self._note_bad(f"{row.place}: {error}")
                continue
            content = content_of(record)
            reason = why_left_out(record, content, self._config.lengths)
            if reason is not None:
                self._tally.drop(reason, row.place)
            else:
                yield row, record, content

    def _convert(self, row: RawRow) -> Record:
        if row.problem:
            raise BadRowError(row.problem)
        if self._format is None:
            self._format = self._find_format(row)
        record = convert(self._format, row.fields, self._columns)
        record = as_record(record, self._config.rows)
        return record if self._config.system_prompt is None else with_system(record, self._config.system_prompt)

    def _find_format(self, row: RawRow) -> Format:
        name = find_format(frozenset(row.fields), self._columns)
        if name is None:
            known = "; ".join(f"{name}: {form.example}" for name, form in FORMATS.items())
            expected = f"; expected {FORMATS['problem'].example}, or one of the other formats ({known})"
            names = ", ".join(row.fields) or "none"
            raise UserError(
                f"{row.place}: no known format has its columns ({names}){expected}; say by `columns` what they are"
            )
        return FORMATS[name]

    def _sameness(self, record: Record) -> Sameness:
        chosen = self._config.deduplicate
        if chosen == "normalised" or chosen == "exact":
            return chosen
        return "exact" if isinstance(record, Row) else "normalised"

    def _note_bad(self, problem: str) -> None:
        self._tally.drop("bad", problem)
        if self._config.bad_rows == "fail":
            self._bad.append(problem)
            if len(self._bad) == _SHOWN:
                self._refuse_bad()

    def _refuse_bad(self) -> None:
        if self._bad:
            expected = "" if self._format is None else f"; expected {self._format.example}"
            told = "\n".join(self._bad)
            raise UserError(f"{told}{expected}; correct such rows, or leave them out with `bad_rows: skip`")
