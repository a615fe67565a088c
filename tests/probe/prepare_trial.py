"""The stage `prepare` on settings, over a store below a folder."""

import threading
from pathlib import Path

from stages.context import RunContext
from stages.contract import StageRequest
from stages.prepare.config import PrepareConfig
from stages.sources.resolve import resolve
from stages.store.conditional import open_store


def prepare_request(folder: Path, config: PrepareConfig) -> StageRequest:
    """Of the one attempt."""
    return StageRequest(
        stage_id="prepare",
        kind="prepare",
        version=1,
        key="0" * 64,
        config=config.model_dump_json(),
        inputs={},
        sources=tuple(resolve(entry.source, folder) for entry in config.sources),
        store=f"file://{folder}/store",
        attempt="000001-a",
        epoch=1,
        resume=(),
        scratch=str(folder / "scratch"),
        cache=str(folder / "cache"),
    )


def prepare_context(folder: Path, config: PrepareConfig, stop: threading.Event | None = None) -> RunContext:
    """Of the one attempt."""
    request = prepare_request(folder, config)
    return RunContext(request, open_store(request.store), stop or threading.Event())
