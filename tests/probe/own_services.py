"""Postgres and Redis for one test, on loopback, with the settings that the compose file gives them."""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from compose_file import Compose
from scheduled import wait_until

ROOT_USER = 0
NO_SETTINGS: Mapping[str, str] = {}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def die_with_parent() -> None:
    """Also when the test process is killed: 1 is PR_SET_PDEATHSIG."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def program(name: str) -> str:
    """Its path; Debian keeps those of Postgres apart, by version."""
    places = [os.environ["PATH"], *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))]
    found = shutil.which(name, path=os.pathsep.join(places))
    assert found is not None, f"{name} is missing: `make test-slow` installs what infra/apt/test-slow.txt lists"
    return found


@contextmanager
def running(
    command: Sequence[str], log: Path, user: str | None = None, settings: Mapping[str, str] = NO_SETTINGS
) -> Generator[None]:
    """A server in the background, stopped afterwards."""
    with log.open("ab") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            env={**os.environ, **settings},
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509
        )
    try:
        yield
        assert process.poll() is None, f"{command[0]} ended with {process.returncode}"
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def postgres(compose: Compose) -> Generator[int]:
    """The port of a server with the user and database of the compose file."""
    service = compose["services"]["postgres"]
    given = service.get("environment", {})
    user = "postgres" if os.geteuid() == ROOT_USER else None
    folder = Path(tempfile.mkdtemp(prefix="temper-postgres-"))
    try:
        if user is not None:
            shutil.chown(folder, user)
        (folder / "password").write_text(given["POSTGRES_PASSWORD"])
        (folder / "password").chmod(0o644)
        data, name = folder / "data", given["POSTGRES_USER"]
        start = [program("initdb"), "--no-sync", f"--username={name}", f"--pwfile={folder / 'password'}"]
        groups = None if user is None else []
        subprocess.run(
            [*start, "--auth=scram-sha-256", "--encoding=UTF8", str(data)],
            user=user,
            group=user,
            extra_groups=groups,
            check=True,
            capture_output=True,
            cwd=folder,
        )
        port = free_port()
        own = ["-D", str(data), "-p", str(port), "-c", "listen_addresses=127.0.0.1"]
        command = [program("postgres"), *service["command"][1:], *own, "-c", f"unix_socket_directories={folder}"]
        address = f"postgresql://{name}:{given['POSTGRES_PASSWORD']}@127.0.0.1:{port}"
        with running(command, folder / "log", user):
            wait_until(lambda: _answers([program("psql"), f"{address}/postgres", "-c", "select 1"]))
            create = f"create database {given['POSTGRES_DB']}"
            subprocess.run([program("psql"), f"{address}/postgres", "-c", create], check=True, capture_output=True)
            yield port
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def redis(compose: Compose, folder: Path) -> Generator[int]:
    """The port of a server with the settings of the compose file."""
    port = free_port()
    name, *settings = compose["services"]["redis"]["command"]
    own = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    with running([program(name), *settings, *own], folder / "redis.log"):
        wait_until(lambda: _answers([program("redis-cli"), "-p", str(port), "ping"]))
        yield port


def _answers(command: Sequence[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
