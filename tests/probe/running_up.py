"""A `temper up` as a process of its own, whose runs know the probe."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from prefect.client.orchestration import SyncPrefectClient
from scheduled import engine_python, wait_until

from flows.scheduler.address import Up, find_up
from flows.scheduler.connect import connect

UP = Path(__file__).with_name("up_probe.py")
START_SECONDS = 120


class Running:
    """A `temper up` in a folder that is its project, with further arguments and settings of Prefect's."""

    def __init__(self, project: Path, arguments: Sequence[str], settings: Mapping[str, str]) -> None:
        engine = project / "engine"
        engine.mkdir(exist_ok=True)
        (project / ".temper").mkdir(exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        self.process = subprocess.Popen(
            [sys.executable, str(UP), "up", *arguments],
            cwd=project,
            env={**environment, **settings, "PROBE_ENGINE": str(engine_python(engine))},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        wait_until(lambda: self.process.poll() is not None or find_up(project / ".temper") is not None, START_SECONDS)
        up = find_up(project / ".temper")
        assert up is not None, self.process.communicate()[0]
        self.up: Up = up

    @contextmanager
    def client(self) -> Generator[SyncPrefectClient]:
        with connect(self.up.address) as client:
            yield client

    def descendants(self) -> set[int]:
        """Processes that have this one's folder in their environment, or listen for it."""
        mark = f"TEMPER_UP_FOLDER={self.up.folder}".encode()
        home = f"PREFECT_HOME={self.up.folder}".encode()
        found = set()
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and any(word in (entry / "environ").read_bytes() for word in (mark, home)):
                    found.add(int(entry.name))
            except OSError:
                continue
        return found - {self.process.pid}

    def kill(self) -> None:
        """As no signal that it could answer does."""
        assert self.process.stdout is not None
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def end(self, number: signal.Signals, seconds: float = 60) -> tuple[int, str]:
        """Send it a signal; returns its exit code and all that it said."""
        self.process.send_signal(number)
        output, _ = self.process.communicate(timeout=seconds)
        return self.process.returncode, output


def is_alive(process: int) -> bool:
    """Whether it is there, and not only not yet waited for."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
