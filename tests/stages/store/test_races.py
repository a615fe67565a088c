"""The whole protocol under six racing workers; see `race.py` beside this file."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

NUM_WORKERS = 6


def race(uri: str, seed: int, rounds: int) -> Counter[str]:
    """Runs rounds, checks what must hold in each, and returns how often each event happened."""
    program = Path(__file__).with_name("race.py")
    command = [sys.executable, str(program), uri, str(NUM_WORKERS), str(seed), str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120 + 20 * rounds, check=False)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == rounds, done.stderr
    total: Counter[str] = Counter()
    for result in results:
        counts = Counter(result["counts"])
        assert result["hung"] == 0, result
        assert counts["wrote"] <= 1, f"committed twice: {result}"
        assert counts["finished"] + counts["reused"] + counts["died"] == NUM_WORKERS, (result, done.stderr)
        assert counts["finished"] <= 1, f"two take the result for their own: {result}"
        assert len([event for event in counts if event.startswith("result:")]) <= 1, f"two results: {result}"
        assert result["manifest"] or counts["died"] == NUM_WORKERS, f"left unfinished: {result}"
        assert result["problems"] == [], result
        total += counts
    return total


def test_racing_workers_commit_once_and_always_finish(store_uri: str) -> None:
    counts = race(store_uri, seed=1, rounds=2)
    assert counts["died"] + counts["stalled"] >= 2


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_thirty_rounds_of_racing_workers_commit_once_and_always_finish(store_uri: str) -> None:
    counts = race(store_uri, seed=77, rounds=30)
    assert min(counts[event] for event in ("died", "stalled", "lost", "fenced", "reused")) > 0
