"""The locks: how they come about and are used, and environments that agree where they must."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "infra" / "locks"
LOCKS = sorted(FOLDER.glob("*.txt"))
# Of Temper's own packages, those that only flows and tasks import.
OF_FLOWS = {"apprise", "httpx", "prefect", "rich", "uvicorn"}


def pins(lock: Path) -> dict[str, str]:
    """Version by package."""
    return dict(re.findall(r"^([a-z0-9-]+)(?:\[[^]]*\])?==(\S+)", lock.read_text(), re.MULTILINE))


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^a-z0-9-]", requirement)[0] for requirement in requirements}


def test_make_compiles_and_syncs_every_lock() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert [lock.name for lock in LOCKS if f"-o infra/locks/{lock.name}" not in makefile] == []
    uses = re.sub(r"^\t\$\(COMPILE\).*\n", "", makefile, flags=re.MULTILINE)
    of_other_machines = {"cuda", "tpu"}
    assert {lock.stem for lock in LOCKS if f"infra/locks/{lock.name}" not in uses} == of_other_machines


@pytest.mark.parametrize("name", ["vllm", "tunix"])
def test_environments_that_are_compared_share_the_versions_of_jax_and_what_stands_on_it(name: str) -> None:
    own, other = pins(FOLDER / "cpu.txt"), pins(FOLDER / f"{name}.txt")
    shared = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "qwix")
    assert {package: other[package] for package in shared} == {package: own[package] for package in shared}


def test_all_that_stages_import_stands_beside_vllm_and_prefect_does_not() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = names(project["dependencies"] + project["optional-dependencies"]["cpu"])
    beside = set(pins(FOLDER / "vllm.txt"))
    assert wanted - beside == OF_FLOWS - beside
    assert "prefect" not in beside
    assert {"torchvision", "torchaudio", "torchcodec"} & beside == set()
