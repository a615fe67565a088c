"""The Dockerfiles: what they copy is there, what they install is locked, what they start starts."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "infra" / "docker").glob("*.Dockerfile"))
KNOWN = {"FROM", "COPY", "RUN", "ENV", "USER", "WORKDIR", "EXPOSE", "ENTRYPOINT", "CMD"}
TEMPER = [path for path in FILES if path.stem != "server"]


def instructions(path: Path) -> list[tuple[str, str]]:
    """Each instruction with its arguments, lines joined."""
    text = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE))
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in text.splitlines() if line]


def arguments(path: Path, name: str) -> list[str]:
    return [rest for instruction, rest in instructions(path) if instruction == name]


def of(path: Path) -> str:
    return path.stem


def test_there_is_one_for_each_kind_of_machine_and_for_the_server() -> None:
    assert [path.stem for path in FILES] == ["cpu", "cuda", "server", "tpu"]


@pytest.mark.parametrize("path", FILES, ids=of)
def test_it_holds_known_instructions_and_begins_with_a_pinned_python(path: Path) -> None:
    found = instructions(path)
    assert {name for name, _ in found} <= KNOWN
    assert found[0][0] == "FROM"
    assert {rest.split()[0] for rest in arguments(path, "FROM")} == {"python:3.11-slim-bookworm"}


@pytest.mark.parametrize("path", FILES, ids=of)
def test_what_it_copies_is_in_the_repository(path: Path) -> None:
    sources = [
        source
        for rest in arguments(path, "COPY")
        if "--from=" not in rest
        for source in [word for word in rest.split() if not word.startswith("--")][:-1]
    ]
    assert sources
    assert [source for source in sources if not (ROOT / source).exists()] == []


@pytest.mark.parametrize("path", FILES, ids=of)
def test_all_that_it_installs_from_an_index_is_locked_with_hashes(path: Path) -> None:
    commands = [command.strip() for rest in arguments(path, "RUN") for command in rest.split("&&")]
    installs = [command for command in commands if re.search(r"\bpip (install|sync)\b", command)]
    assert installs
    for command in installs:
        locked = re.findall(r"/locks/\w+\.txt", command)
        assert locked or "--no-deps" in command, command
        assert all(f"infra{lock}" in path.read_text() for lock in locked)


@pytest.mark.parametrize("path", TEMPER, ids=of)
def test_the_lock_is_that_of_its_machine(path: Path) -> None:
    assert f"/locks/{path.stem}.txt" in path.read_text()
    lock = (ROOT / "infra" / "locks" / f"{path.stem}.txt").read_text()
    own = {"cpu": "jaxlib==", "cuda": "jax-cuda13-plugin==", "tpu": "libtpu=="}
    assert own[path.stem] in lock
    assert [other for kind, other in own.items() if kind not in ("cpu", path.stem) and other in lock] == []


@pytest.mark.parametrize("path", TEMPER, ids=of)
def test_it_runs_as_a_user_and_starts_the_command(path: Path) -> None:
    assert arguments(path, "USER") == ["temper"]
    [entrypoint] = arguments(path, "ENTRYPOINT")
    [command] = arguments(path, "CMD")
    reaper, dashes, *started = json.loads(entrypoint)
    assert (reaper, dashes) == ("tini", "--")
    assert "tini" in path.read_text().split("ENTRYPOINT")[0]
    program = Path(sys.executable).parent / started[0]
    shown = subprocess.run([program, *started[1:], *json.loads(command)], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("usage: temper")


def test_the_image_of_the_server_starts_the_server_alone() -> None:
    path = next(path for path in FILES if path.stem == "server")
    assert json.loads(arguments(path, "ENTRYPOINT")[0]) == ["prefect"]
    assert json.loads(arguments(path, "CMD")[0]) == ["server", "start", "--no-services"]
