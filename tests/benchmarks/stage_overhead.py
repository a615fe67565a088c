"""What a stage costs beside its own process: `python tests/benchmarks/stage_overhead.py [--flow] [--takeover]`.

A stage that does nothing is started by hand, through `execute_stage`, and with `--flow` in a chain under a Prefect
server, in turns, and medians are printed. The time until a lease is taken over is measured too, for a holder on this
host that was killed and, with `--takeover`, for one on another host that is silent.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path

from rich.console import Console

HERE = Path(__file__).parents[1]
sys.path[:0] = [str(HERE.parent), str(HERE / "probe")]

from temper_probe import ProbeConfig, register  # noqa: E402

from pipelines.spec.diagnostics import Place  # noqa: E402
from pipelines.spec.nodes import Resources, Retry, StageNode, Timeout  # noqa: E402
from stages.contract import StageRequest  # noqa: E402
from stages.store.conditional import open_store  # noqa: E402
from stages.store.holder import Holder, this_holder  # noqa: E402
from stages.store.layout import StagePaths  # noqa: E402
from stages.store.lease import Lease, Observation, acquire  # noqa: E402
from tasks.display import Display  # noqa: E402
from tasks.execute_stage import execute_stage  # noqa: E402
from tasks.observer import Observers  # noqa: E402
from tasks.stage_work import StageWork  # noqa: E402
from tasks.stopping import StopSignal  # noqa: E402

CONFIG = ProbeConfig(num_steps=1)
CHAIN = 6


def probe_python(folder: Path) -> str:
    """An interpreter that knows the probe."""
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / "probe" / "probe_python.py"} "$@"\n')
    script.chmod(0o755)
    return str(script)


def work(folder: Path, python: str, number: int) -> StageWork:
    """The stage in the store below `folder`, with an identity for each number."""
    node = StageNode(
        id="probe",
        kind="probe",
        config=CONFIG,
        inputs={},
        needs=(),
        rev=0,
        retry=Retry(max=0, delay=(0.0,), jitter=0.0, on=(), preempted_max=0),
        timeout=Timeout(total=60.0, stall=60.0, grace=5.0),
        resources=Resources(accelerator="cpu", share=False, python=python),
        place=Place("benchmark"),
    )
    return StageWork(
        node=node,
        key=f"{number:064x}",
        payload=b"{}",
        inputs={},
        sources=(),
        store=open_store(str(folder / "store")),
        run_url=None,
        cache=folder / "cache",
        locks=folder / "locks",
        display=Display(Console(file=StringIO())),
        stop=StopSignal(),
        run_id="benchmark",
    )


def by_hand(folder: Path, python: str, number: int) -> None:
    """The stage's process alone."""
    request = StageRequest(
        stage_id="probe",
        kind="probe",
        version=1,
        key=f"{number:064x}",
        config=CONFIG.model_dump_json(),
        inputs={},
        store=str(folder / "by hand"),
        attempt="000001-a",
        epoch=1,
        resume=(),
        scratch=str(folder / "scratch" / str(number)),
        cache=str(folder / "cache"),
    )
    file = folder / "request.json"
    file.write_text(request.model_dump_json())
    quiet = subprocess.DEVNULL
    subprocess.run([python, "-m", "stages", str(file)], check=True, stdin=quiet, stdout=quiet, stderr=quiet)


def medians(rounds: int, ways: Mapping[str, Callable[[int], object]]) -> dict[str, float]:
    """Seconds of one call of each, measured in turns; the first round warms up."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            started = time.perf_counter()
            way(number)
            times[name].append(time.perf_counter() - started)
    return {name: statistics.median(seconds[1:]) for name, seconds in times.items()}


def chain_seconds(folder: Path, python: str, rounds: int) -> float:
    """Seconds for each stage of a chain in one flow, from the flow's start to its end."""
    from prefect.settings import PREFECT_API_URL, PREFECT_LOGGING_LEVEL, temporary_settings

    from flows.pipeline import run_pipeline
    from flows.server import OwnServer
    from flows.server_home import claim_numbered_home

    server = OwnServer(claim_numbered_home(folder / "prefect"))
    try:
        server.wait_until_ready()
        os.environ.update({"XDG_CACHE_HOME": str(folder / "cache"), "XDG_STATE_HOME": str(folder / "state")})
        with temporary_settings({PREFECT_API_URL: server.address, PREFECT_LOGGING_LEVEL: "ERROR"}):
            found = medians(rounds, {"flow": lambda number: run_pipeline(str(chain(folder, python, number)))})
        return found["flow"] / CHAIN
    finally:
        server.stop()


def chain(folder: Path, python: str, number: int) -> Path:
    """A pipeline of probes, each after the one before."""
    before = ["", *(f"s{at}" for at in range(CHAIN - 1))]
    stages = "\n".join(
        f"  s{at}: {{uses: probe, needs: [{need}], with: {{num_steps: 1, seed: {number * 100 + at}}}}}"
        for at, need in enumerate(before)
    )
    file = folder / f"chain{number}.yaml"
    head = f"version: 1\nname: chain\nstore: {folder / 'store'}\ndefaults: {{resources: {{python: {python}}}}}\n"
    file.write_text(f"{head}stages:\n{stages}\n")
    return file


def takeover_seconds(folder: Path, holder: Holder, number: int) -> float:
    """Seconds until the lease of `holder`, which never renews it, is ours."""
    store, paths = open_store(str(folder / "store")), StagePaths("probe", f"{number:064x}")
    assert isinstance(acquire(store, paths, holder, Observation()), Lease)
    observation, started = Observation(), time.perf_counter()
    while not isinstance(acquire(store, paths, this_holder(), observation), Lease):
        time.sleep(0.1)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--flow", action="store_true", help="measure a flow under a Prefect server too")
    parser.add_argument("--takeover", action="store_true", help="measure the takeover from another host: two minutes")
    arguments = parser.parse_args()
    register()
    folder = Path(tempfile.mkdtemp())
    try:
        measure(folder, arguments.rounds, arguments.flow, arguments.takeover)
    finally:
        shutil.rmtree(folder)


def measure(folder: Path, rounds: int, flow: bool, takeover: bool) -> None:
    """Print one line for each way."""
    python = probe_python(folder)
    found = medians(
        rounds,
        {
            "alone": lambda number: by_hand(folder, python, number),
            "supervised": lambda number: execute_stage(work(folder, python, number), Observers()),
            "reused": lambda _: execute_stage(work(folder, python, 0), Observers()),
        },
    )
    alone = found["alone"]
    print(f"process alone       {alone:6.3f} s")
    print(f"supervised          {found['supervised']:6.3f} s, overhead {found['supervised'] - alone:.3f} s")
    print(f"reused              {found['reused']:6.3f} s")
    if flow:
        each = chain_seconds(folder, python, max(1, rounds // 3))
        print(f"each of {CHAIN} in a flow {each:6.3f} s, overhead {each - alone:.3f} s")
    gone = this_holder().model_copy(update={"pid_start": "1"})
    print(f"takeover, this host {takeover_seconds(folder, gone, 10**6):6.3f} s")
    if takeover:
        distant = this_holder().model_copy(update={"host": "another"})
        print(f"takeover, other host {takeover_seconds(folder, distant, 10**6 + 1):6.1f} s")


if __name__ == "__main__":
    main()
