"""A stage that does nothing well and fails on demand; tests put it into the catalog."""

import ctypes
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Literal

from stages import catalog
from stages.contract import (
    Artifact,
    Execution,
    ModelArtifact,
    ReportArtifact,
    SourceRef,
    StageConfigBase,
    StageContext,
)
from stages.errors import PreemptedError, StorageError, UserError

Fault = Literal[
    "none",
    "sigkill",
    "bug",
    "user_error",
    "storage",
    "preempted",
    "hang",
    "native_hang",
    "deaf",
    "eat_memory",
    "no_output",
]


class ProbeConfig(StageConfigBase):
    num_steps: int = 3
    seed: int = 0
    step_seconds: float = Execution(0.0)
    save_every_steps: int = Execution(1)
    fault: Fault = Execution("none")
    fault_at: int = Execution(2)
    fault_once: str = Execution("")
    """A file that is made by the fault and prevents the next one; empty for a fault every time."""
    pids: str = Execution("")
    """A file that gets the ids of this process and of one that it started, one a line."""
    width: int = Execution(8)
    """How wide a step is: one that is wider than `memory` runs out of it."""
    memory: int = Execution(8)
    show: str = Execution("")
    """A variable of the environment that is printed, and is the message of a bug."""
    spans: str = Execution("")
    """A file that gets a line with the times of start and end, in seconds of the monotonic clock."""


ADDED: dict[str, dict[str, type[Artifact]]] = {
    "probe": {},
    "probe_consumer": {"report": ReportArtifact},
    "probe_tuner": {"model": ModelArtifact},
}
"""Kind to inputs."""


def register() -> None:
    """Add the kinds to this process's catalog."""
    for kind, inputs in ADDED.items():
        catalog.STAGES[kind] = catalog.Stage(  # type: ignore[index]
            config=ProbeConfig,
            version=1,
            module="temper_probe",
            inputs=inputs,
            outputs={"checkpoint": ModelArtifact, "report": ReportArtifact},
            multi_process=True,
        )


def run(context: StageContext, config: ProbeConfig) -> None:
    started = time.monotonic()
    if config.pids:
        other = subprocess.Popen(["sleep", "1000"])
        Path(config.pids).write_text(f"{os.getpid()}\n{other.pid}\n")
    total = sum(json.loads((context.input_dir(name) / "rows.json").read_text())["total"] for name in _inputs(context))
    step = 0
    for point in context.progress.candidates()[:1]:
        saved = json.loads((Path(context.progress.uri(point)) / "state.json").read_text())
        step, total = saved["step"], saved["total"]
    print(f"start after step {step}", flush=True)  # noqa: T201
    if config.show:
        print(f"{config.show} is {os.environ.get(config.show)}", flush=True)  # noqa: T201
    while step < config.num_steps:
        step += 1
        if config.fault != "none" and step == config.fault_at and _is_due(config):
            _fail(context, config)
        if config.width > config.memory:
            raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.")
        time.sleep(config.step_seconds)
        total += step * (config.seed + 1)
        context.log_metrics(step, {"loss/total": float(total)})
        context.beat(step, config.num_steps, {"loss": float(total)})
        if step % config.save_every_steps == 0 or context.progress.save_due() or context.should_stop():
            _save(context, step, total)
        if context.should_stop():
            raise PreemptedError(f"saved step {step}")
    if config.fault != "no_output":
        _write(context, total)
    if config.spans:
        with Path(config.spans).open("a") as file:
            file.write(f"{started} {time.monotonic()}\n")


def _inputs(context: StageContext) -> list[str]:
    return [name for name in ("report", "model") if _has_input(context, name)]


def _has_input(context: StageContext, name: str) -> bool:
    try:
        context.input(name)
    except KeyError:
        return False
    return True


def _save(context: StageContext, step: int, total: float) -> None:
    folder = Path(context.progress.new_uri(step))
    folder.mkdir(parents=True)
    (folder / "state.json").write_text(json.dumps({"step": step, "total": total}))
    context.progress.commit(step)


def _write(context: StageContext, total: float) -> None:
    nowhere = SourceRef(uri="nowhere", digest="sha256:0")
    artifacts = {"report": ReportArtifact(metrics={"total": float(total)}), "checkpoint": ModelArtifact(base=nowhere)}
    for name, artifact in artifacts.items():
        folder = context.output_dir(name)
        (folder / "rows.json").write_text(json.dumps({"total": total}))
        (folder / "artifact.json").write_text(artifact.model_dump_json())


def _is_due(config: ProbeConfig) -> bool:
    if not config.fault_once:
        return True
    if Path(config.fault_once).exists():
        return False
    Path(config.fault_once).touch()
    return True


def _fail(context: StageContext, config: ProbeConfig) -> None:
    match config.fault:
        case "sigkill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "bug":
            raise ValueError(" ".join(filter(None, ["a bug", os.environ.get(config.show)])))
        case "user_error":
            raise UserError("bad data")
        case "storage":
            raise StorageError("cannot read")
        case "preempted":
            raise PreemptedError("saved")
        case "hang":
            while not context.should_stop():
                time.sleep(0.05)
        case "native_hang":
            # PyDLL keeps the interpreter's lock: no Python thread or signal handler runs meanwhile.
            ctypes.PyDLL(None).sleep(1000)
        case "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(1000)
        case "eat_memory":
            blocks = [bytearray(b"x" * (1 << 24)) for _ in range(10_000)]
            raise AssertionError(len(blocks))
        case _:
            return
