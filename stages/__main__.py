"""A stage's own process: `python -m stages request.json` runs one attempt and leaves `result.json` behind.

Exit codes: 0 done; 65 bad data or configuration; 70 a bug; 71 not enough memory; 74 the store or a source failed; 75
asked to stop, progress saved. Without a supervisor, run by hand, it does the same and writes beats to the log.
"""

import argparse
import importlib
import logging
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from stages.catalog import STAGES, Stage
from stages.context import OUTPUTS_FOLDER, SCRATCH_FOLDER, RunContext
from stages.contract import (
    ARTIFACT_FILE,
    RESULT_FILE,
    Artifact,
    ClusterRequest,
    CorruptInput,
    FileEntry,
    StageRequest,
    StageResult,
)
from stages.engine.metrics.following import following
from stages.engine.metrics.tracked_run import TrackedRun
from stages.errors import CorruptArtifactError, PreemptedError, StorageError, TemperError, UserError
from stages.lifeline import hold
from stages.secrets import Hide, hider, set_secrets
from stages.store.conditional import ConditionalStore, open_store
from stages.store.io_errors import is_full_disk
from stages.store.layout import StagePaths
from stages.store.outputs import upload_output

# Run as a program this module is not called by its name.
logger = logging.getLogger("stages")

CLEAN_EXITS = (0, PreemptedError.exit_code)
OUT_OF_MEMORY = 71
OUTCOMES = {65: "user_error", 70: "bug", OUT_OF_MEMORY: "oom", 74: "storage", 75: "preempted"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the attempt that the request file describes; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m stages", description=__doc__)
    parser.add_argument("request", type=Path, help="file with a StageRequest as JSON")
    path = parser.parse_args(argv).request
    hold()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("stages").setLevel(logging.INFO)
    try:
        request = read_request(path)
    except UserError as error:
        logger.error("%s", error)  # noqa: TRY400
        return error.exit_code
    _set_environment(request)
    return _run_to_result(request)


def read_request(path: Path) -> StageRequest:
    """The request in a file.

    Raises:
        UserError: it cannot be read, is not valid, or is for another version of this program.
    """
    try:
        request = StageRequest.model_validate_json(path.read_text())
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        raise UserError(f"{path}: no valid request: {error}") from error
    stage = STAGES.get(request.kind)
    if stage is None:
        raise UserError(f"{path}: unknown stage kind '{request.kind}', expected one of {', '.join(STAGES)}")
    if request.version != stage.version:
        raise UserError(
            f"{path}: wants version {request.version} of '{request.kind}', this installation has {stage.version}"
        )
    return request


def _set_environment(request: StageRequest) -> None:
    """What JAX reads when it is first imported; what is set already stays."""
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(request.cache) / "programs"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


def _stop_on_signals() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    return stop


def _run_to_result(request: StageRequest) -> int:
    """The edge of the process: every error becomes a result and an exit code."""
    stop, hide = _stop_on_signals(), hider(())
    try:
        hide = set_secrets(request.secrets)
        if request.cluster is not None:
            _join_cluster(request.cluster, STAGES[request.kind], request.kind)
        result, exit_code = _run(request, stop), 0
    except TemperError as error:
        if isinstance(error, UserError | PreemptedError):
            logger.warning("%s", error)
        else:
            traceback.print_exc()
        result, exit_code = _failure(error, error.exit_code, hide), error.exit_code
    except Exception as error:  # noqa: BLE001
        traceback.print_exc()
        if is_full_disk(error):
            error = StorageError(f"{error}; free some space: the stage works in {request.scratch}")
        exit_code = _exit_code_of(error)
        result = _failure(error, exit_code, hide)
    exit_code = _write_result(Path(request.scratch), result, exit_code)
    if request.cluster is not None:
        _leave_cluster(exit_code)
    return exit_code


def _join_cluster(cluster: ClusterRequest, stage: Stage, kind: str) -> None:
    if not stage.multi_process:
        raise UserError(f"{kind} runs in one process, not in {cluster.num_processes}")
    from stages.engine.cluster.processes import join

    join(cluster)


def _leave_cluster(exit_code: int) -> None:
    """Waits for the others to end too; one that failed does not, because they wait for it to go on."""
    if exit_code not in CLEAN_EXITS:
        logging.shutdown()
        sys.stdout.flush()
        os._exit(exit_code)
    from stages.engine.cluster.processes import leave

    leave()


def _exit_code_of(error: Exception) -> int:
    if isinstance(error, StorageError):
        return error.exit_code
    return OUT_OF_MEMORY if _is_out_of_memory(error) else TemperError.exit_code


def _is_out_of_memory(error: Exception) -> bool:
    """XLA says so by this word for every device, in an error whose class only jax has."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


def _failure(error: Exception, exit_code: int, hide: Hide) -> StageResult:
    corrupt = CorruptInput(stage=error.stage, key=error.key) if isinstance(error, CorruptArtifactError) else None
    message = str(error) if isinstance(error, TemperError) else f"{type(error).__name__}: {error}"
    return StageResult.model_validate({"outcome": OUTCOMES[exit_code], "message": hide(message), "corrupt": corrupt})


def _run(request: StageRequest, stop: threading.Event) -> StageResult:
    logger.info("%s: stage %s, attempt %s", request.stage_id, request.kind, request.attempt)
    stage = STAGES[request.kind]
    store = open_store(request.store)
    try:
        config = stage.config.model_validate_json(request.config)
    except ValidationError as error:
        raise UserError(f"settings of {request.stage_id}: {error}") from error
    with following(_tracked_runs(request), Path(request.scratch)) as followers:
        context = RunContext(request, store, stop, followers)
        try:
            importlib.import_module(stage.module).run(context, config)
        finally:
            context.flush_metrics()
    stored = stage.outputs if request.leads else ()
    outputs = {name: _upload_output(request, stage, store, context, name) for name in stored}
    sizes = (f"{name} {sum(file.size for file in files):,} bytes" for name, files in outputs.items())
    logger.info("done: %s", ", ".join(sizes) or "the outputs are stored by process 0")
    return StageResult(
        outcome="done",
        outputs=outputs,
        numbers=context.last_numbers,
        first_step=context.first_step,
        last_step=context.last_step,
    )


def _tracked_runs(request: StageRequest) -> list[TrackedRun]:
    if request.tracking is None or not request.leads:
        return []
    return [
        TrackedRun(
            tracker=tracker,
            pipeline=request.tracking.pipeline,
            stage=request.stage_id,
            kind=request.kind,
            key=request.key,
            attempt=request.attempt,
            config=request.config,
        )
        for tracker in request.tracking.trackers.chosen
    ]


def _upload_output(
    request: StageRequest, stage: Stage, store: ConditionalStore, context: RunContext, name: str
) -> tuple[FileEntry, ...]:
    folder = context.output_dir(name)
    _check_descriptor(folder / ARTIFACT_FILE, stage.outputs[name])
    target = StagePaths(request.kind, request.key).attempt(request.attempt).out(name)
    return upload_output(store, target, folder)


def _check_descriptor(path: Path, artifact: type[Artifact]) -> None:
    """Raises `TypeError` if the stage did not write the output that the catalog promises: a bug."""
    try:
        artifact.model_validate_json(path.read_text())
    except (OSError, ValidationError) as error:
        raise TypeError(f"{path.parent.name}/{path.name} is no {artifact.__name__}: {error}") from error


def _write_result(scratch: Path, result: StageResult, exit_code: int) -> int:
    """Leave the result behind; returns the exit code, which says as much where there is no room for it."""
    try:
        _store_result(scratch, result)
    except OSError:
        # The disk is full of what a failed attempt has no use for any more.
        for folder in (OUTPUTS_FOLDER, SCRATCH_FOLDER):
            shutil.rmtree(scratch / folder, ignore_errors=True)
        try:
            _store_result(scratch, result)
        except OSError as error:
            logger.error("no result: %s; free some space", error)  # noqa: TRY400
            return exit_code or StorageError.exit_code
    return exit_code


def _store_result(scratch: Path, result: StageResult) -> None:
    scratch.mkdir(parents=True, exist_ok=True)
    partial = scratch / f"{RESULT_FILE}.partial"
    partial.write_text(result.model_dump_json(indent=1))
    partial.replace(scratch / RESULT_FILE)


if __name__ == "__main__":
    sys.exit(main())
