"""Expected values, computed independently."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

ORACLES = Path(__file__).parents[3] / "oracles" / "maths.json"


@pytest.fixture(scope="session")
def oracle() -> Callable[[str, str], np.ndarray]:
    """Numbers of a field, by the entry's name and the field's; a dot goes into a field, null is NaN."""
    entries = {entry["name"]: entry for entry in json.loads(ORACLES.read_text(encoding="utf-8"))}

    def read(name: str, field: str) -> np.ndarray:
        value = entries[name]
        for key in field.split("."):
            value = value[key]
        return np.array(value, np.float32)

    return read
