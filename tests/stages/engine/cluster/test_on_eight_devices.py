"""A process sees as many devices as it was started with: the tests of `eight_devices.py` need one of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent / "eight_devices.py"


def run_tests(marked: str) -> None:
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "8", "JAX_DISABLE_MOST_OPTIMIZATIONS": "true"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-m",
        marked,
        str(TESTS),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_what_eight_devices_do_together_passes_its_tests() -> None:
    run_tests("not slow")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_kind_of_model_on_every_kind_of_mesh_passes_its_tests() -> None:
    run_tests("slow")
