"""Shipped pipelines, each in a folder of its own."""

from collections.abc import Callable
from pathlib import Path

import pytest
from shipped_pipeline import Shipped


@pytest.fixture
def shipped(
    prefect_api: str, probe_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Shipped]:
    """From the name of a file to its copy."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return lambda name: Shipped(name, tmp_path, probe_python)
