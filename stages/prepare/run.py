"""Distinct problems of a source, shuffled and cut into splits, top to bottom."""

from collections.abc import Iterator, Sequence

from stages.contract import StageContext
from stages.engine.data.loader import permutation
from stages.engine.data.records import Message, Row, write_dataset
from stages.engine.data.sources import Problem, distinct_problems, problems_of_file
from stages.errors import PreemptedError, UserError
from stages.prepare.config import PrepareConfig
from stages.sources.reasoning_gym import SCHEME, open_task

PROBLEMS_PER_BEAT = 100


def run(context: StageContext, config: PrepareConfig) -> None:
    """Write the splits; the same settings give the same bytes.

    Raises:
        UserError: the source has fewer distinct problems than the splits need.
    """
    sizes = {"train": config.num_train, "validation": config.num_validation, "held_out": config.num_held_out}
    problems = _draw(context, config, sum(sizes.values()))
    order = permutation(len(problems), config.seed, epoch=0)
    start = 0
    for split, size in sizes.items():
        chosen = [problems[index] for index in order[start : start + size]]
        write_dataset(context.output_dir(split), _rows(chosen, split, config.system_prompt))
        start += size
    context.log_metrics(len(problems), {f"data/{split}_rows": float(size) for split, size in sizes.items()})


def _draw(context: StageContext, config: PrepareConfig, num_problems: int) -> Sequence[Problem]:
    """As many distinct problems as all splits hold together: that no two are the same makes the splits disjoint."""
    context.beat(0, num_problems, {})
    problems: list[Problem] = []
    for problem in _problems(context, config):
        problems.append(problem)
        if len(problems) % PROBLEMS_PER_BEAT == 0:
            context.beat(len(problems), num_problems, {})
            if context.should_stop():
                raise PreemptedError("stopped while drawing problems; nothing was written")
        if len(problems) == num_problems:
            context.beat(num_problems, num_problems, {})
            return problems
    raise UserError(
        f"{config.source} has only {len(problems)} distinct problems, but num_train + num_validation + num_held_out "
        f"is {num_problems}; ask for fewer, or widen the source"
    )


def _problems(context: StageContext, config: PrepareConfig) -> Iterator[Problem]:
    source = context.source(config.source)
    if source.uri.startswith(SCHEME):
        return distinct_problems(open_task(source), config.seed)
    return problems_of_file(context.source_path(source))


def _rows(problems: Sequence[Problem], split: str, system_prompt: str | None) -> list[Row]:
    system = () if system_prompt is None else (Message(role="system", content=system_prompt),)
    return [
        Row(
            id=f"{split}-{number:05d}",
            messages=(*system, Message(role="user", content=problem.question)),
            response=problem.answer,
            answer=problem.answer,
        )
        for number, problem in enumerate(problems)
    ]
