"""What became of the rows: numbers for gates, and a table to read."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt32

from stages.contract import ARTIFACT_FILE, ReportArtifact
from stages.prepare.sizes import SPLITS, Split
from stages.prepare.tally import REASONS, Tally

TABLE_FILE = "data.md"


class SourceReport(NamedTuple):
    """A source: its name, what was left out of it, and how many rows it gave to each split."""

    name: str
    tally: Tally
    given: Mapping[Split, int]


def write_report(
    folder: Path, sources: Sequence[SourceReport], lengths: Mapping[Split, UInt32[np.ndarray, " _"]]
) -> dict[str, float]:
    """Write the report's numbers and its table; the numbers.

    Args:
        folder: of the output.
        sources: in the order of the settings.
        lengths: characters of each row of each split.
    """
    metrics = {"read_rows": float(sum(source.tally.num_read for source in sources))}
    metrics |= {f"{split}_rows": float(len(lengths[split])) for split in SPLITS}
    for reason in REASONS:
        metrics[f"{reason}_rows"] = float(sum(source.tally.counts[reason] for source in sources))
    for split in SPLITS:
        if len(lengths[split]):
            metrics |= {f"{split}_characters_{name}": value for name, value in _spread(lengths[split]).items()}
    (folder / ARTIFACT_FILE).write_text(ReportArtifact(metrics=metrics).model_dump_json() + "\n", encoding="utf-8")
    (folder / TABLE_FILE).write_text(_table(sources, lengths), encoding="utf-8")
    return metrics


def _spread(lengths: UInt32[np.ndarray, " _"]) -> dict[str, float]:
    median, high = np.percentile(lengths, [50, 95])
    return {"mean": float(lengths.mean()), "p50": float(median), "p95": float(high), "max": float(lengths.max())}


def _table(sources: Sequence[SourceReport], lengths: Mapping[Split, UInt32[np.ndarray, " _"]]) -> str:
    lines = ["# Data", "", "## Rows", "", *_header("source", "read", *SPLITS, "left out", "not needed")]
    for source in sources:
        given = [source.given[split] for split in SPLITS]
        dropped = source.tally.counts.total()
        lines.append(
            _line(source.name, source.tally.num_read, *given, dropped, source.tally.num_read - dropped - sum(given))
        )
    lines += ["", "## Characters", "", *_header("split", "rows", "mean", "p50", "p95", "max")]
    for split in SPLITS:
        shown = [f"{value:.0f}" for value in _spread(lengths[split]).values()] if len(lengths[split]) else [""] * 4
        lines.append(_line(split, len(lengths[split]), *shown))
    lines += ["", "## Left out", ""]
    told = [line for source in sources for line in _left_out(source)]
    return "\n".join([*lines, *(told or ["Nothing."]), ""])


def _left_out(source: SourceReport) -> list[str]:
    lines: list[str] = []
    for reason, words in REASONS.items():
        if number := source.tally.counts[reason]:
            lines += [f"- {source.name}: {number} × {words}, first:"]
            lines += [f"    - {place}" for place in source.tally.examples[reason]]
    return lines


def _header(*names: str) -> list[str]:
    return [_line(*names), _line(*("---" for _ in names))]


def _line(*cells: object) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"
