"""Rows of one source or several, shuffled and cut into splits, top to bottom."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

import numpy as np
from jaxtyping import UInt32

from stages.contract import StageContext
from stages.engine.data.records import Row, write_lines
from stages.errors import UserError
from stages.prepare.config import PrepareConfig
from stages.prepare.mixture import Pool, collect_all, make_pools
from stages.prepare.pulse import Pulse
from stages.prepare.report import SourceReport, write_report
from stages.prepare.sizes import SPLITS, Split, most_rows, rows_needed, split_sizes
from stages.prepare.splits import Chosen, ShortageError, choose_splits


def run(context: StageContext, config: PrepareConfig) -> None:
    """Write the splits and what became of the rows; the same settings give the same bytes.

    Raises:
        UserError: a source is not what it should be, or has fewer distinct rows than the splits need.
    """
    pulse = Pulse(context, total=2 * (rows_needed(config) or 0))
    with ExitStack() as stack:
        pools = make_pools(config, collect_all(context, config, pulse, stack))
        splits = _choose(config, pools)
        for split in SPLITS:
            rows = _with_ids(split, splits[split], pools, pulse)
            write_lines(context.output_dir(split), rows, pools[0].source.record)
        write_report(
            context.output_dir("report"),
            [_source_report(number, pool, splits) for number, pool in enumerate(pools)],
            {split: _lengths(chosen, pools) for split, chosen in splits.items()},
        )
    pulse.finish()
    sizes = {f"data/{split}_rows": float(len(splits[split].rows)) for split in SPLITS}
    context.log_metrics(int(sum(sizes.values())), sizes)


def _choose(config: PrepareConfig, pools: Sequence[Pool]) -> Mapping[Split, Chosen]:
    """The splits; rows to train on that ask what another split asks are counted as left out."""
    weights = [pool.weight for pool in pools]
    total = rows_needed(config)
    total = most_rows([len(pool.kept) for pool in pools], weights) if total is None else total
    sizes = split_sizes(config, total)
    try:
        splits, elsewhere = choose_splits([pool.prompts for pool in pools], weights, sizes, config.seed)
    except ShortageError as shortage:
        raise UserError(_shortage(shortage, config, pools)) from shortage
    for pool, rows in zip(pools, elsewhere, strict=True):
        pool.source.tally.drop_many("prompt_elsewhere", len(rows), pool.places(rows))
    if not len(splits["train"].rows):
        left_out = sum(pool.source.tally.counts.total() for pool in pools)
        places = [place for pool in pools for told in pool.source.tally.examples.values() for place in told]
        example = f", such as {places[0]}" if places else ""
        raise UserError(f"source: no row is left to train on; {left_out} were left out{example}")
    return splits


def _shortage(shortage: ShortageError, config: PrepareConfig, pools: Sequence[Pool]) -> str:
    pool = pools[shortage.source]
    name, total = pool.source.entry.source, rows_needed(config)
    what = "problems" if pool.source.record is Row else "rows"
    if len(pools) == 1 and total is not None and len(pool.kept) < total:
        return (
            f"{name} has only {len(pool.kept)} distinct {what}, but num_train + num_validation + num_held_out is "
            f"{total}; ask for fewer, or widen the source"
        )
    return (
        f"{name} has only {shortage.available} distinct {what} for the split '{shortage.split}' that ask what no other "
        f"split asks, but {shortage.wanted} are wanted of it; ask for fewer, or change the weights"
    )


def _with_ids(split: Split, chosen: Chosen, pools: Sequence[Pool], pulse: Pulse) -> Iterator[bytes]:
    for number, (source, row) in enumerate(zip(chosen.sources, chosen.rows, strict=True)):
        pulse.tick()
        yield pools[source].row(int(row), f"{split}-{number:05d}")


def _source_report(number: int, pool: Pool, splits: Mapping[Split, Chosen]) -> SourceReport:
    given: dict[Split, int] = {
        split: int(np.count_nonzero(chosen.sources == number)) for split, chosen in splits.items()
    }
    return SourceReport(pool.source.entry.source, pool.source.tally, given)


def _lengths(chosen: Chosen, pools: Sequence[Pool]) -> UInt32[np.ndarray, " rows"]:
    lengths = np.zeros(len(chosen.rows), np.uint32)
    for number, pool in enumerate(pools):
        of_source = chosen.sources == number
        lengths[of_source] = pool.lengths[chosen.rows[of_source]]
    return lengths
