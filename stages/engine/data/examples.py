"""Prompts with one response each, and how a dataset of them is laid out in rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from stages.engine.data.batching import Batch, Branch, Tree, pack_trees, round_up


@dataclass(frozen=True)
class Example:
    """One prompt and one response, in token ids; the response ends with its end token.

    Attributes:
        id: the row's id, for messages.
    """

    id: str
    prompt: tuple[int, ...]
    response: tuple[int, ...]


def shared_prefix(prompts: Sequence[Sequence[int]]) -> int:
    """Tokens with which all prompts begin, as system messages do; at least one token of each prompt is left over."""
    columns = zip(*(prompt[:-1] for prompt in prompts), strict=False)
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))


@dataclass(frozen=True)
class ExampleLayout:
    """How a dataset's micro-batches are laid out, in one shape for all of them.

    Where prompts begin alike, a micro-batch is one tree over their common beginning, which is then computed once.
    Otherwise it has a row for each example. Both give the same loss and gradient.

    Attributes:
        prefix: tokens of the common trunk; 0 for a row for each example.
        width: inputs of a row.
        max_response: targets of an example.
        micro_batch: examples of a micro-batch.
    """

    prefix: int
    width: int
    max_response: int
    micro_batch: int

    def pack(self, examples: Sequence[Example]) -> Batch:
        """A micro-batch.

        Raises:
            ValueError: examples of another dataset, which do not fit.
        """
        if not self.prefix:
            trees = [Tree(example.prompt, [Branch((), example.response)]) for example in examples]
        else:
            branches = [Branch(example.prompt[self.prefix :], example.response) for example in examples]
            trees = [Tree(examples[0].prompt[: self.prefix], branches)]
        return pack_trees(trees, max_response=self.max_response, width=self.width)

    def pack_all(self, examples: Sequence[Example]) -> list[Batch]:
        """Micro-batches of examples whose number `micro_batch` divides."""
        return [
            self.pack(examples[start : start + self.micro_batch]) for start in range(0, len(examples), self.micro_batch)
        ]


def choose_layout(examples: Sequence[Example], micro_batch: int) -> ExampleLayout:
    """A tree where it halves the computed tokens, a row for each example otherwise."""
    longest = max(len(example.prompt) + len(example.response) - 1 for example in examples)
    max_response = max(len(example.response) for example in examples)
    prefix = shared_prefix([example.prompt for example in examples])
    as_rows, as_tree = round_up(longest), round_up(prefix + micro_batch * (longest - prefix))
    if 2 * as_tree <= micro_batch * as_rows:
        return ExampleLayout(prefix, as_tree, max_response, micro_batch)
    return ExampleLayout(0, as_rows, max_response, micro_batch)
