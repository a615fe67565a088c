"""The shipped tiny model is what its script makes."""

import runpy
from pathlib import Path

SCRIPT = Path(__file__).parent / "make_tiny_model.py"
SHIPPED = Path(__file__).parents[1] / "pipelines" / "tiny"


def test_the_script_makes_the_shipped_files_byte_for_byte(tmp_path: Path) -> None:
    runpy.run_path(str(SCRIPT))["write_tiny_model"](tmp_path)
    made, shipped = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in (tmp_path, SHIPPED))
    assert sorted(made) == ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert made == shipped
