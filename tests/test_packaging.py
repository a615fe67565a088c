"""The built wheel, and the names that the distribution promises."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("flows", "tasks", "stages", "pipelines")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of the files in the wheel, built from a copy of the tree without the network."""
    copy = tmp_path_factory.mktemp("tree")
    for folder in PACKAGES:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, copy)
    build = "from setuptools import build_meta; print(build_meta.build_wheel('.'))"
    subprocess.run([sys.executable, "-c", build], cwd=copy, check=True, capture_output=True, timeout=120)
    (built,) = copy.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_every_file_of_the_four_packages(wheel: set[str]):
    files = {
        str(path.relative_to(ROOT))
        for folder in PACKAGES
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files - wheel == set()


def test_the_wheel_holds_no_tests_and_carries_the_licence(wheel: set[str]):
    folders = {name.split("/")[0] for name in wheel}
    (metadata,) = folders - set(PACKAGES)
    assert f"{metadata}/licenses/LICENSE" in wheel


def test_the_distribution_declares_its_extras_and_keeps_test_libraries_out():
    assert set(PROJECT["optional-dependencies"]) == {"cpu", "cuda", "tpu", "data", "gcs", "trackers"}
    declared = [line for extra in PROJECT["optional-dependencies"].values() for line in extra]
    declared += PROJECT["dependencies"]
    assert [line for line in declared if line.startswith(("torch", "transformers", "vllm"))] == []


def test_a_plain_install_brings_no_accelerator_library():
    heavy = ("jax[", "jax>", "flax", "optax", "orbax", "qwix")
    assert [line for line in PROJECT["dependencies"] if line.startswith(heavy)] == []


# Import names that are not their distribution's, and parts of one that come with it.
DISTRIBUTIONS = {
    "google": "google-cloud-storage",
    "google_crc32c": "google-crc32c",
    "huggingface_hub": "huggingface-hub",
    "markupsafe": "jinja2",
    "mlflow": "mlflow-skinny",
    "ml_dtypes": "jax",
    "orbax": "orbax-checkpoint",
    "pydantic_core": "pydantic",
    "reasoning_gym": "reasoning-gym",
    "urllib3": "requests",
    "yaml": "pyyaml",
}


def imported_distributions() -> set[str]:
    names: set[str] = set()
    for path in (path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.split(".")[0])
    foreign = names - set(sys.stdlib_module_names) - set(PACKAGES)
    return {DISTRIBUTIONS.get(name, name) for name in foreign}


def test_what_is_imported_is_declared_and_what_is_declared_is_imported():
    extras = [line for extra in PROJECT["optional-dependencies"].values() for line in extra]
    declared = {re.split(r"[\[>=<]", line)[0] for line in [*PROJECT["dependencies"], *extras]}
    assert imported_distributions() == declared
