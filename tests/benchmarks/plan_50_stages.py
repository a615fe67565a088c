"""What `temper plan` takes for 50 stages, and `temper run` for 6 that are all committed, without a server.

`python tests/benchmarks/plan_50_stages.py [--rounds N]` times whole processes on a local store: plans when nothing is
committed, when all is, and when the first stage changed, so that every other one is explained by it. Beside the time
that passed stands the time of the processor, which other work on the machine moves less.
"""

import argparse
import itertools
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from pipelines.spec.load import load_pipeline
from pipelines.spec.plan import make_plan
from pipelines.spec.stage_inputs import stage_inputs
from stages.catalog import STAGES
from stages.contract import ReportArtifact, StageInput
from stages.source_digest import source_files
from stages.store.conditional import ConditionalStore, open_store
from stages.store.layout import StagePaths
from stages.store.manifest import Manifest, write_spec
from stages.store.provenance import Provenance
from stages.store.records import encode

ROOT = Path(__file__).parents[2]
HEAD = """\
version: 1
name: chain
store: store
stages:
  data:
    uses: prepare
    with: {source: rows.jsonl, num_train: 8, num_held_out: 4, seed: 7}
"""
TRAIN = """\
  sft_{n}:
    uses: sft
    inputs: {{model: "{model}", dataset: "${{stages.data.outputs.train}}"}}
    with:
      model: {{lora: {{rank: 2, alpha: 4}}}}
      optimizer: {{learning_rate: 1.0e-3}}
      num_steps: 4
      batch_size: 8
      seed: 1
"""
EVALUATE = """\
  eval_{n}:
    uses: evaluation
    inputs: {{model: "${{stages.sft_{n}.outputs.checkpoint}}", dataset: "${{stages.data.outputs.held_out}}"}}
    with: {{sampling: {{temperature: 0.0, max_response_tokens: 4}}}}
"""
NOWHERE = Provenance(argv=(), git_revision=None, packages={}, host="here", python="3", system="benchmark")


def main() -> None:
    """Print one line for each command and state of the store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_CACHE_HOME"] = os.environ["XDG_STATE_HOME"] = f"{name}/home"
        os.environ.pop("PREFECT_API_URL", None)
        file = write_project(Path(name) / "fifty", num_stages=50)
        report("plan of 50 stages, nothing committed", rounds, "plan", str(file))
        commit_all(file)
        report("plan of 50 stages, all committed", rounds, "plan", str(file))
        changed = ("--set", "stages.data.with.seed=8")
        report("plan of 50 stages, the first one changed", rounds, "plan", str(file), *changed)
        file = write_project(Path(name) / "six", num_stages=6)
        commit_all(file)
        report("run of 6 stages, all committed", rounds, "run", str(file))


def write_project(folder: Path, num_stages: int) -> Path:
    """A data set, and a chain of trainings with an evaluation of each."""
    (folder / "base").mkdir(parents=True)
    (folder / "base" / "config.json").write_text("{}")
    (folder / "rows.jsonl").write_text("{}\n")
    file = folder / "chain.yaml"
    file.write_text(HEAD + "".join(itertools.islice(chain(), num_stages - 1)))
    return file


def chain() -> Iterator[str]:
    model = "base"
    for n in itertools.count():
        yield TRAIN.format(n=n, model=model)
        yield EVALUATE.format(n=n)
        model = f"${{stages.sft_{n}.outputs.checkpoint}}"


def commit_all(file: Path) -> None:
    """Commit small files for every stage, as a run would."""
    pipeline = load_pipeline(file)
    store = open_store(pipeline.store)
    plan = make_plan(pipeline, store)
    manifests: dict[str, Manifest] = {}
    for planned in plan.nodes.values():
        assert planned.key is not None
        assert planned.payload is not None
        paths = StagePaths(planned.kind, planned.key)
        write_spec(store, paths, planned.payload)
        inputs = stage_inputs(planned, plan, manifests)
        manifests[paths.key] = manifest_of(store, paths, inputs, file.parent / "upload")
        store.create(paths.manifest, encode(manifests[paths.key]))


def manifest_of(store: ConditionalStore, paths: StagePaths, inputs: dict[str, StageInput], upload: Path) -> Manifest:
    upload.write_text(ReportArtifact(metrics={"accuracy": 0.5}).model_dump_json())
    outputs = {
        output: (
            store.upload(f"{paths.attempt('000001-a').out(output)}/artifact.json", upload).model_copy(
                update={"path": "artifact.json"}
            ),
        )
        for output in STAGES[paths.kind].outputs
    }
    return Manifest(
        stage=paths.kind,
        key=paths.key,
        version=STAGES[paths.kind].version,
        attempt="000001-a",
        epoch=1,
        outputs=outputs,
        numbers={},
        inputs=inputs,
        created="2026-01-01T00:00:00+00:00",
        seconds=60.0,
        provenance=NOWHERE.model_copy(update={"source_files": dict(source_files(paths.kind))}),
    )


def report(title: str, rounds: int, *arguments: str) -> None:
    """Time `temper` and print the medians."""
    command = [sys.executable, "-m", "flows.cli", *arguments]
    passed: list[float] = []
    worked: list[float] = []
    for _ in range(rounds + 1):
        started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        passed.append(time.perf_counter() - started)
        worked.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    # The first process of each state may still compile modules.
    print(f"{title}: {statistics.median(passed[1:]):.2f} s, of the processor {statistics.median(worked[1:]):.2f} s")


if __name__ == "__main__":
    main()
