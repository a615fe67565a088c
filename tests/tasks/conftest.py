"""Real child processes of a stage that fails on demand."""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from temper_probe import ProbeConfig

from pipelines.spec.diagnostics import Place
from pipelines.spec.nodes import Resources, Retry, StageNode, Timeout
from stages.contract import Beat, StageInput, StageRequest
from stages.store.conditional import ConditionalStore, open_store
from tasks.display import Display
from tasks.launchers.launcher import Launch
from tasks.launchers.local import LocalChild
from tasks.stage_work import StageWork
from tasks.stopping import StopSignal
from tasks.supervise import BeatWatch

KEY = "ab" * 32


@pytest.fixture(autouse=True)
def _probes(probe_kinds: None) -> None:
    """Every test here may use the probe."""


@pytest.fixture
def store(tmp_path: Path) -> ConditionalStore:
    return open_store(str(tmp_path / "store"))


@dataclass
class Watched:
    """What a child showed so far."""

    lines: list[str] = field(default_factory=list)
    beats: list[Beat] = field(default_factory=list)
    begun: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.watch = BeatWatch(self._keep)

    def _keep(self, beat: Beat) -> None:
        self.beats.append(beat)
        self.begun.set()


StartProbe = Callable[..., tuple[LocalChild, Watched]]


@pytest.fixture
def start_probe(tmp_path: Path, probe_python: str, store: ConditionalStore) -> Iterator[StartProbe]:
    """Starts the probe without a lease; whatever the test leaves is killed."""
    children: list[LocalChild] = []

    def start(**config: object) -> tuple[LocalChild, Watched]:
        watched = Watched()
        request = StageRequest(
            stage_id="probe",
            kind="probe",
            version=1,
            key=KEY,
            config=ProbeConfig.model_validate(config).model_dump_json(),
            inputs={},
            store=store.uri,
            attempt=f"{len(children) + 1:06d}-test",
            epoch=len(children) + 1,
            resume=(),
            scratch=str(tmp_path / f"scratch{len(children)}"),
            cache=str(tmp_path / "cache"),
        )
        launch = Launch(request, probe_python, "cpu", on_line=watched.lines.append, on_beat=watched.watch)
        children.append(LocalChild(launch))
        return children[-1], watched

    yield start
    for child in children:
        child.close()


@dataclass
class Witness:
    """Keeps what it observes of a stage, in words."""

    told: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    beats: list[Beat] = field(default_factory=list)

    def waiting(self, text: str) -> None:
        self.told.append(f"waiting: {text}")

    def running(self, text: str) -> None:
        self.told.append(f"running: {text}")

    def preempted(self, text: str) -> None:
        self.told.append(f"preempted: {text}")

    def note(self, text: str) -> None:
        self.told.append(f"note: {text}")

    def beat(self, beat: Beat) -> None:
        self.beats.append(beat)

    def log(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture
def witness() -> Witness:
    """An observer that remembers."""
    return Witness()


MakeWork = Callable[..., StageWork]


@pytest.fixture
def make_work(tmp_path: Path, probe_python: str, store: ConditionalStore) -> MakeWork:
    """Work for `execute_stage`, all of it below the test's folder; `changes` are fields of its node."""

    def make(
        kind: str = "probe",
        key: str = KEY,
        inputs: dict[str, StageInput] | None = None,
        preempted_max: int = 2,
        stop: StopSignal | None = None,
        share: bool = True,
        grace: float = 5.0,
        run_id: str = "run-1",
        changes: Mapping[str, Any] | None = None,
        **config: object,
    ) -> StageWork:
        node = StageNode(
            id=kind,
            kind=kind,
            config=ProbeConfig.model_validate(config),
            inputs={},
            needs=(),
            rev=0,
            retry=Retry(max=0, delay=(0.0,), jitter=0.0, on=("infra",), preempted_max=preempted_max),
            timeout=Timeout(total=60.0, stall=30.0, grace=grace),
            resources=Resources(accelerator="cpu", share=share, python=probe_python),
            place=Place("test.yaml", 1, 1),
        )
        node = replace(node, **(changes or {}))
        return StageWork(
            node=node,
            key=key,
            payload=b"{}",
            inputs=inputs or {},
            sources=(),
            store=store,
            run_url=None,
            cache=tmp_path / "cache",
            locks=tmp_path / "locks",
            display=Display(Console(file=StringIO())),
            stop=stop or StopSignal(),
            run_id=run_id,
        )

    return make
