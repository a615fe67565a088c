"""A shipped pipeline in a folder of its own."""

import json
import shutil
from pathlib import Path

from flows.cli import main

PIPELINES = Path(__file__).parents[2] / "pipelines"


class Shipped:
    """A copy of a pipeline, with the tiny model and the recipes beside it."""

    def __init__(self, name: str, folder: Path, python: str) -> None:
        for beside in ("tiny", "recipes"):
            shutil.copytree(PIPELINES / beside, folder / beside)
        self._file = str(shutil.copy(PIPELINES / name, folder))
        self._flags = ["--set", f"defaults.resources.python={python}"]
        self._stages = folder / ".temper/store/v1/stages"
        (folder / ".temper").mkdir()

    def run(self) -> int:
        """The exit code."""
        return main(["run", self._file, *self._flags])

    def plan(self) -> int:
        """The exit code, which is 0 where all would be reused."""
        return main(["plan", self._file, "--exit-code", *self._flags])

    def outputs(self, kind: str, output: str) -> list[Path]:
        """Folders of an output, of all stages of a kind."""
        return list((self._stages / kind).glob(f"*/attempts/*/out/{output}"))

    def metrics(self, kind: str) -> list[dict[str, float]]:
        """Of the reports of all stages of a kind."""
        return [
            json.loads((report / "artifact.json").read_text())["metrics"] for report in self.outputs(kind, "report")
        ]
