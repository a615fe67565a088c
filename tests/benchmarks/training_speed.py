"""Updates of SFT and DPO against Tunix and TRL: `python tests/benchmarks/training_speed.py [--rounds N]`.

Every system is a process of its own and trains all weights of the same Qwen3 in float32 with AdamW, on the same pairs:
of one length, where nobody pads, and of lengths as in chats, where each does what it does. They take turns within one
run, and each one's best counts, in tokens of the data. `make peers` makes the environments of the others.
"""

import argparse
import sys
from collections.abc import Mapping

from speed_system import HERE, System, Times, best
from speed_worker import Sizes
from training_examples import SETS, num_tokens

ROOT = HERE.parents[1]
SYSTEMS: Mapping[str, tuple[str, str]] = {
    "temper": (sys.executable, "training_of_temper.py"),
    "tunix": (str(ROOT / ".venv-tunix" / "bin" / "python"), "training_of_tunix.py"),
    "trl": (str(ROOT / ".venv-trl" / "bin" / "python"), "training_of_trl.py"),
}
SIZES = Sizes(4, 256, 768, 4, 2, 64, 8192, rows=8, tokens=128)


def measure(rounds: int) -> dict[tuple[str, str], Times]:
    """The best times of each pass by pass and system."""
    systems = {name: System(*command, SIZES) for name, command in SYSTEMS.items()}
    found: dict[tuple[str, str], list[Times]] = {}
    for _ in range(rounds):
        for what in ("sft", "dpo"):
            for kind in SETS:
                for name, system in systems.items():
                    found.setdefault((f"{what} {kind}", name), []).append(system.run(f"{what} {kind}"))
    for system in systems.values():
        system.close()
    return {key: best(times) for key, times in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    times = measure(parser.parse_args().rounds)
    print(f"{'':<24}{'tokens/s':>9}{'x temper':>10}{'CPU s':>9}{'x temper':>10}")
    for what in ("sft", "dpo"):
        for kind, make_pairs in SETS.items():
            total = num_tokens(make_pairs(SIZES), what)
            for name in SYSTEMS:
                taken, ours = times[f"{what} {kind}", name], times[f"{what} {kind}", "temper"]
                columns = f"{total / taken.seconds:>9.0f}{taken.seconds / ours.seconds:>10.2f}"
                columns += f"{taken.cpu_seconds:>9.2f}{taken.cpu_seconds / ours.cpu_seconds:>10.2f}"
                print(f"  {what} {kind:<8}{name:<10}{columns}", flush=True)


if __name__ == "__main__":
    main()
