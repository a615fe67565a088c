"""Forward and backward passes against `transformers` and Tunix: `python tests/benchmarks/model_speed.py [--rounds N]`.

Every system is a process of its own and holds the same Qwen3 in float32; the gradient is that of all weights. They take
turns within one run, with a large product of matrices in between, and each one's best counts. On a busy machine compare
CPU seconds. `make peers` makes `.venv-tunix`.
"""

import argparse
import sys
from collections.abc import Mapping

from speed_system import HERE, System, Times, best
from speed_worker import Sizes

TUNIX = HERE.parents[1] / ".venv-tunix" / "bin" / "python"
SYSTEMS: Mapping[str, tuple[str, str]] = {
    "temper": (sys.executable, "speed_of_temper.py"),
    "transformers": (sys.executable, "speed_of_transformers.py"),
    "tunix": (str(TUNIX), "speed_of_tunix.py"),
}
SHAPES: Mapping[str, Sizes] = {
    "small": Sizes(8, 512, 1536, 8, 4, 64, 8192, rows=4, tokens=128),
    "smollm2": Sizes(30, 576, 1536, 9, 3, 64, 49152, rows=4, tokens=128),
    "wide": Sizes(3, 2048, 6144, 16, 8, 128, 8192, rows=4, tokens=128),
}
SQUARE_FLOPS = 2 * 2048**3


def forward_flops(sizes: Sizes) -> int:
    """Of matrix products, attention counted without its mask, as every system here computes it."""
    projections = sizes.width * sizes.head_size * 2 * (sizes.num_heads + sizes.num_kv_heads)
    per_layer = (
        2 * (projections + 3 * sizes.width * sizes.hidden) + 4 * sizes.tokens * sizes.num_heads * sizes.head_size
    )
    return sizes.rows * sizes.tokens * (sizes.num_layers * per_layer + 2 * sizes.width * sizes.vocab_size)


def measure(sizes: Sizes, rounds: int) -> dict[tuple[str, str], Times]:
    """The best times of each pass by system and pass."""
    systems = {name: System(*command, sizes) for name, command in SYSTEMS.items()}
    found: dict[tuple[str, str], list[Times]] = {}
    for _ in range(rounds):
        for what in ("forward", "both"):
            found.setdefault(("temper", "peak"), []).append(systems["temper"].run("peak"))
            for name, system in systems.items():
                found.setdefault((name, what), []).append(system.run(what))
    for system in systems.values():
        system.close()
    return {key: best(times) for key, times in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shape", choices=SHAPES, action="append", help="may be given several times; all by default")
    arguments = parser.parse_args()
    for title in arguments.shape or SHAPES:
        sizes = SHAPES[title]
        found = measure(sizes, arguments.rounds)
        peak = found["temper", "peak"]
        speed = SQUARE_FLOPS / peak.seconds / 1e9
        print(f"{title}: {sizes.rows} rows of {sizes.tokens} tokens; a product of matrices {speed:.0f} GFLOP/s")
        print(f"{'':<24}{'tokens/s':>9}{'x temper':>10}{'of peak':>9}{'CPU s':>9}{'x temper':>10}{'of peak':>9}")
        for what, factor in (("forward", 1), ("both", 3)):
            work = factor * forward_flops(sizes) / SQUARE_FLOPS
            for name in SYSTEMS:
                taken, ours = found[name, what], found["temper", what]
                columns = [f"{sizes.rows * sizes.tokens / taken.seconds:>9.0f}"]
                columns += [f"{taken.seconds / ours.seconds:>10.2f}{work * peak.seconds / taken.seconds:>9.0%}"]
                columns += [f"{taken.cpu_seconds:>9.2f}{taken.cpu_seconds / ours.cpu_seconds:>10.2f}"]
                columns += [f"{work * peak.cpu_seconds / taken.cpu_seconds:>9.0%}"]
                print(f"  {what:<9}{name:<13}{''.join(columns)}", flush=True)


if __name__ == "__main__":
    main()
