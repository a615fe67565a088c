"""Stages run in the test's own process, over a real store on the local disk."""

import importlib
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from stages.catalog import STAGES
from stages.context import RunContext
from stages.contract import (
    RESULT_FILE,
    ExternalInput,
    Saving,
    StageConfigBase,
    StageInput,
    StageRequest,
    StageResult,
    StoredInput,
)
from stages.engine.data.records import Message, Record, Row, write_dataset
from stages.sources.resolve import resolve
from stages.store.layout import StagePaths, attempt_name
from stages.store.local import LocalStore
from stages.store.outputs import upload_output
from stages.store.progress import committed_points
from stages.store.segments import MetricRow, read_metrics

TINY = Path(__file__).parents[2] / "pipelines" / "tiny"


class StopAfter(threading.Event):
    """Set from the `steps`-th time on that it is asked: a training loop asks once a step."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self._left = steps

    def is_set(self) -> bool:
        self._left -= 1
        return self._left <= 0


class StageTrial:
    """One stage identity in a store below `folder`.

    Its attempts have a folder each, and resume from those before.
    """

    def __init__(self, folder: Path, kind: str, config: StageConfigBase, inputs: Mapping[str, StageInput]) -> None:
        self.kind = kind
        self.config = config
        self.inputs = dict(inputs)
        self.store = LocalStore(folder / "store")
        self.paths = StagePaths(kind, uuid.uuid4().hex * 2)
        self.attempts = 0
        self.saving = Saving()
        self._folder = folder

    def request(self) -> StageRequest:
        """Of the next attempt."""
        self.attempts += 1
        name = attempt_name(self.attempts, "trial")
        return StageRequest(
            stage_id=self.kind,
            kind=self.kind,
            version=STAGES[self.kind].version,
            key=self.paths.key,
            config=self.config.model_dump_json(),
            inputs=self.inputs,
            store=self.store.uri,
            attempt=name,
            epoch=self.attempts,
            resume=tuple(committed_points(self.store, self.paths)),
            saving=self.saving,
            scratch=str(self._folder / "scratch" / self.paths.key / name),
            cache=str(self._folder / "cache"),
        )

    def context(self, stop: threading.Event | None = None) -> RunContext:
        """Of the next attempt."""
        return RunContext(self.request(), self.store, stop or threading.Event())

    def run(self, stop: threading.Event | None = None) -> RunContext:
        """Runs the next attempt; its metrics are stored however it ends."""
        context = self.context(stop)
        try:
            importlib.import_module(STAGES[self.kind].module).run(context, self.config)
        finally:
            context.flush_metrics()
        return context

    def run_on(self, num_devices: int) -> StageResult:
        """Runs the next attempt in a process that sees so many devices; its programs are not optimized."""
        request = self.request()
        file = Path(request.scratch).with_suffix(".json")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(request.model_dump_json())
        environment = {**os.environ, "JAX_NUM_CPU_DEVICES": str(num_devices), "JAX_DISABLE_MOST_OPTIMIZATIONS": "true"}
        command = [sys.executable, "-m", "stages", str(file)]
        subprocess.run(command, stdin=subprocess.DEVNULL, env=environment, check=False)
        return StageResult.model_validate_json((Path(request.scratch) / RESULT_FILE).read_text())

    def metrics(self) -> list[MetricRow]:
        """Rows of all attempts, merged."""
        return read_metrics(self.store, self.paths)

    def learned(self) -> list[tuple[int, dict[str, float]]]:
        """What each step says about learning: the same however often the run was stopped, so the clock is left out."""
        return [
            (row.step, {name: value for name, value in row.numbers.items() if not name.startswith("throughput/")})
            for row in self.metrics()
        ]


def external(path: Path) -> ExternalInput:
    """A model on this machine."""
    return ExternalInput(source=resolve(str(path), path.parent))


def stored(folder: Path, content: Path) -> StoredInput:
    """A folder as another stage's output, in the store below `folder`."""
    name = f"outputs/{uuid.uuid4().hex}"
    files = upload_output(LocalStore(folder / "store"), name, content)
    return StoredInput(stage="trial", key="0" * 64, output=content.name, folder=name, files=files)


def stored_rows(folder: Path, rows: Sequence[Record]) -> StoredInput:
    """A dataset as another stage's output, in the store below `folder`."""
    content = folder / f"rows-{uuid.uuid4().hex}"
    content.mkdir(parents=True)
    write_dataset(content, rows, type(rows[0]))
    return stored(folder, content)


def coin_rows(num: int, answer: Callable[[int], str]) -> list[Row]:
    """The same three questions again and again; nothing in them tells the answer."""
    return [
        Row(
            id=f"row-{n:03d}",
            messages=(Message(role="user", content=f"coin {n % 3}?"),),
            response=answer(n),
            answer=answer(n),
        )
        for n in range(num)
    ]


class Trained(NamedTuple):
    """What `sft` made of the tiny model: it says 0 or 1 to `coin_rows`, at random.

    Attributes:
        folder: with the store; later stages run in it too.
        trial: of the stage.
        outputs: local folders by name.
        model: the checkpoint, as the input of another stage.
    """

    folder: Path
    trial: StageTrial
    outputs: Mapping[str, Path]
    model: StoredInput
