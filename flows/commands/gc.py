"""`temper gc`: delete what nothing in the pipeline's store needs."""

import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections import Counter
from collections.abc import Iterable, Iterator

from flows.commands.arguments import add_file, load
from pipelines.spec.durations import parse_duration
from stages.store.conditional import open_store
from stages.store.gc import Collected, collect
from stages.store.gc_plan import Doomed, Garbage, Retention, find_garbage
from stages.store.holder import this_holder
from stages.store.marker import check_marker

GIGABYTE = 1e9


def add_arguments(parser: ArgumentParser) -> None:
    """The file, how long what is kept, and whether to delete."""
    add_file(parser)
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and change nothing")
    parser.add_argument(
        "--keep-runs", type=_duration, default="30d", metavar="TIME", help="keep what younger runs used (default: 30d)"
    )
    parser.add_argument(
        "--grace",
        type=_duration,
        default="7d",
        metavar="TIME",
        help="delete a result only when it was found unused for so long (default: 7d)",
    )
    parser.add_argument(
        "--price-per-gb-month",
        type=float,
        metavar="PRICE",
        help="say what the bytes cost, a gigabyte being 10^9 of them",
    )


def run(arguments: Namespace) -> int:
    """Print what is garbage, and delete it unless asked not to.

    Raises:
        UserError: the store is not marked as one of this layout.
        StorageError: it cannot be read or written.
    """
    store = open_store(load(arguments).store)
    check_marker(store)
    retention = Retention(arguments.grace, arguments.keep_runs)
    garbage = find_garbage(store, retention, this_holder(), time.time())
    print("\n".join(_describe(garbage, arguments.price_per_gb_month)))
    if arguments.dry_run:
        print("nothing was changed: this was a dry run")
    else:
        print(_outcome(collect(store, garbage)))
    return 0


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ArgumentTypeError(f"'{text}': {error}") from error


def _describe(garbage: Garbage, price: float | None) -> Iterator[str]:
    yield f"{len(garbage.kept)} stages are needed{_reasons(garbage)}"
    yield from (
        f"  needed again, so no longer condemned: {_name(stage.paths.kind, stage.paths.key)}"
        for stage in garbage.rescues
    )
    yield from _section("not needed: condemned now, deleted by a later run of this command", garbage.condemned, price)
    yield from _section("condemned before, not used since: deleted", garbage.swept, price)
    yield from _section("leftovers of attempts: deleted", garbage.leftovers, price)
    if garbage.aside:
        size = sum(listed.size for listed in garbage.aside)
        yield f"files that dead writers left: {_amount(len(garbage.aside), size, price)}"


def _reasons(garbage: Garbage) -> str:
    """For example `: alias prod 2, recent runs 5; the others are what these were made from`."""
    reasons = Counter(reason for reason in garbage.kept.values() if reason)
    parts = ", ".join(f"{reason} {number}" for reason, number in sorted(reasons.items()))
    others = "; the others are what these were made from" if "" in garbage.kept.values() else ""
    return f": {parts}{others}" if parts else ""


def _section(title: str, doomed: Iterable[Doomed], price: float | None) -> Iterator[str]:
    rows = list(doomed)
    if rows:
        objects = sum(len(one.objects) for one in rows)
        yield f"{title}: {_amount(objects, sum(one.num_bytes for one in rows), price)}"
        yield from (
            f"  {_name(one.stage.paths.kind, one.stage.paths.key)}  {_amount(len(one.objects), one.num_bytes, price)}"
            for one in rows
        )


def _name(kind: str, key: str) -> str:
    return f"{kind} {key[:16]}"


def _amount(objects: int, num_bytes: int, price: float | None) -> str:
    cost = "" if price is None else f", {price * num_bytes / GIGABYTE:.2f} a month"
    return f"{objects:,} objects, {num_bytes:,} bytes{cost}"


def _outcome(done: Collected) -> str:
    skipped = f"; {done.skipped} were used meanwhile and stay" if done.skipped else ""
    return f"condemned {done.condemned} results, deleted {_amount(done.objects, done.num_bytes, None)}{skipped}"
