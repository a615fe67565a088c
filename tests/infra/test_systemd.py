"""The systemd unit of a worker on a machine of its own."""

import shlex
import shutil
import subprocess
from argparse import ArgumentParser
from configparser import ConfigParser
from pathlib import Path

import pytest

from flows.commands import up

FILE = Path(__file__).parents[2] / "infra" / "systemd" / "temper-worker.service"


@pytest.fixture
def unit() -> ConfigParser:
    parser = ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    parser.read_string(FILE.read_text())
    return parser


def test_it_starts_a_worker_with_arguments_that_the_command_takes(unit: ConfigParser) -> None:
    program, command, *arguments = shlex.split(unit["Service"]["ExecStart"])
    assert (Path(program).name, command) == ("temper", "up")
    parser = ArgumentParser()
    up.add_arguments(parser)
    parsed = parser.parse_args(arguments)
    assert parsed.work_pool == "${TEMPER_POOL}"
    assert parsed.home.is_relative_to(Path("/var/lib") / unit["Service"]["StateDirectory"])


def test_the_signal_goes_to_the_command_alone_and_leaves_time_to_save(unit: ConfigParser) -> None:
    assert unit["Service"]["KillMode"] == "mixed"
    assert unit["Service"]["TimeoutStopSec"] == "5min"
    assert unit["Service"]["SuccessExitStatus"] == "143"


def test_every_variable_that_it_uses_is_told_in_its_heading(unit: ConfigParser) -> None:
    heading = FILE.read_text().partition("[Unit]")[0]
    assert f"{unit['Service']['EnvironmentFile']}:" in heading
    assert all(f"#   {name}=" in heading for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING", "TEMPER_POOL"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_finds_nothing_wrong_with_it(tmp_path: Path) -> None:
    unit = tmp_path / FILE.name
    text = FILE.read_text().replace("/srv/temper/.venv/bin/temper", shutil.which("true") or "")
    unit.write_text(text.replace("EnvironmentFile=", "EnvironmentFile=-"))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")
