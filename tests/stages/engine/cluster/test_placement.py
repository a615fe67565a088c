"""Arrays that are divided over processes, and each process's own of them."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ONE_OF_TWO = Path(__file__).parent / "one_of_two.py"
ROOT = Path(__file__).parents[4]


@pytest.mark.slow
def test_what_is_divided_over_two_processes_is_put_together_in_both() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{probe.getsockname()[1]}"
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "2", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    both = [
        subprocess.Popen(
            [sys.executable, str(ONE_OF_TWO), coordinator, str(process)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in range(2)
    ]
    try:
        for process in both:
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors
    finally:
        for process in both:
            process.kill()
            process.wait()
