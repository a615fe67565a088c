"""The order in which nodes can run."""

from collections.abc import Mapping, Sequence


class CycleError(ValueError):
    """Nodes that wait for each other; `cycle` starts and ends with the same id."""

    def __init__(self, cycle: Sequence[str]) -> None:
        super().__init__(" → ".join(cycle))
        self.cycle = tuple(cycle)


def in_order(needs: Mapping[str, Sequence[str]]) -> list[str]:
    """The ids, each after all that it needs, otherwise as they were given; unknown ids in needs are passed over.

    Raises:
        CycleError: there is no such order.
    """
    ordered: list[str] = []
    done: set[str] = set()
    for start in needs:
        _visit(start, needs, done, ordered)
    return ordered


def _visit(start: str, needs: Mapping[str, Sequence[str]], done: set[str], ordered: list[str]) -> None:
    """Depth first from `start`, without recursion: a pipeline may be one long chain."""
    open_ids: list[str] = []
    waiting: list[tuple[str, bool]] = [(start, False)]
    while waiting:
        node, all_needs_done = waiting.pop()
        if all_needs_done:
            open_ids.pop()
            done.add(node)
            ordered.append(node)
        elif node in open_ids:
            raise CycleError([*open_ids[open_ids.index(node) :], node])
        elif node not in done:
            open_ids.append(node)
            waiting.append((node, True))
            waiting.extend((need, False) for need in reversed(needs[node]) if need in needs)
