"""Bytes that each stage of a pipeline's latest run keeps in the store, by what they are for.

`python tests/benchmarks/store_sizes.py pipelines/quickstart.yaml`
"""

import argparse
from collections import Counter
from pathlib import Path

from pipelines.spec.load import load_pipeline
from stages.catalog import STAGES
from stages.store.conditional import ConditionalStore, open_store
from stages.store.layout import StagePaths
from stages.store.runs import latest_run

PARTS = ("out", "progress", "metrics", "log", "records")


def part_of(path: str, stage: StagePaths) -> str:
    """What an object of a stage is for; records are manifest, lease, spec and the attempts' own."""
    below = path.removeprefix(f"{stage.attempts}/").split("/")
    return below[1] if path.startswith(f"{stage.attempts}/") and below[1] in PARTS else "records"


def sizes(store: ConditionalStore, stage: StagePaths) -> Counter[str]:
    """Bytes by part."""
    found: Counter[str] = Counter()
    for listed in store.list(stage.folder):
        found[part_of(listed.path, stage)] += listed.size
    return found


def main() -> None:
    """Print a row for each stage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--profile")
    arguments = parser.parse_args()
    pipeline = load_pipeline(arguments.file, arguments.profile)
    store = open_store(pipeline.store)
    record = latest_run(store, pipeline.name)
    assert record is not None, f"{pipeline.name} was never run"
    print(f"{'stage':20}" + "".join(f"{part:>14}" for part in PARTS))
    for stage in record.stages:
        if stage.key is not None and stage.kind in STAGES:
            found = sizes(store, StagePaths(stage.kind, stage.key))
            print(f"{stage.id:20}" + "".join(f"{found[part]:>14,}" for part in PARTS))


if __name__ == "__main__":
    main()
