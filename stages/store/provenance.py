"""Where and with what a result was made; recorded, never identity."""

import contextlib
import importlib.metadata
import platform
import socket
import subprocess
import sys
from pathlib import Path

from pydantic import Field

from stages.contract import Strict
from stages.store.hardware import describe_hardware

PACKAGES = (
    "temper-jax",
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "orbax-checkpoint",
    "qwix",
    "numpy",
    "tokenizers",
    "prefect",
)


class Provenance(Strict):
    """The program, its code and the machine."""

    argv: tuple[str, ...]
    git_revision: str | None
    """Of the code's own repository, with `-dirty` after it when files differ; none outside a repository."""
    source_digest: str = ""
    """Of the source files that the stage is made of; empty where nobody recorded it."""
    source_files: dict[str, str] = Field(default_factory=dict)
    """Short digests of these files, by which a plan names the ones that changed since."""
    packages: dict[str, str]
    """Installed versions of the packages that results may depend on."""
    host: str
    python: str
    system: str
    hardware: str = ""
    """In words; empty where nobody recorded it."""


def _git_revision() -> str | None:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        answer = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def _installed() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def collect_provenance() -> Provenance:
    """That of this process."""
    return Provenance(
        argv=tuple(sys.argv),
        git_revision=_git_revision(),
        packages=_installed(),
        host=socket.gethostname(),
        python=platform.python_version(),
        system=platform.platform(),
        hardware=describe_hardware(),
    )
