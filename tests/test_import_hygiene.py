"""What a fresh process loads: no accelerator library outside a stage, no Prefect where nothing runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stages.store.local import LocalStore
from stages.store.marker import ensure_marker

ROOT = Path(__file__).parents[1]
ACCELERATOR = {"jax", "jaxlib", "flax", "optax", "orbax", "qwix", "tensorstore", "torch", "transformers", "vllm"}


def modules(*folders: str, pattern: str = "*.py") -> list[str]:
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob(pattern))]
    return [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths if path.name != "__init__.py"]


SIGNATURES = ["stages.contract", "stages.errors", "stages.catalog", *modules("stages", pattern="config.py")]


def loaded_by(code: str) -> set[str]:
    """Top-level packages that a fresh interpreter holds after running `code`, which may end with an exit status 0."""
    program = f"""
import sys
status = 0
try:
{"".join(f"    {line}" for line in code.splitlines(keepends=True))}
except SystemExit as end:
    status = end.code or 0
import json
print("\\n" + json.dumps([status, sorted({{name.split(".")[0] for name in sys.modules}})]))
"""
    process = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert process.returncode == 0, process.stderr
    status, names = json.loads(process.stdout.splitlines()[-1])
    assert status == 0, process.stderr
    return set(names)


def temper(*arguments: str) -> str:
    return f"sys.argv = ['temper', *{list(arguments)!r}]\nfrom flows.cli import main\nsys.exit(main())"


@pytest.mark.parametrize("module", SIGNATURES)
def test_a_signature_loads_no_accelerator_library_and_no_prefect(module: str):
    assert loaded_by(f"import {module}") & {*ACCELERATOR, "prefect"} == set()


def test_every_module_of_the_flow_process_loads_no_accelerator_library():
    names = modules("flows", "tasks", "pipelines", "stages/store", "stages/sources")
    loaded = loaded_by("\n".join(f"import {module}" for module in names))
    assert "prefect" in loaded
    assert loaded & ACCELERATOR == set()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("validate", "pipelines/smoke.yaml"),
        ("render", "pipelines/smoke.yaml"),
        ("plan", "pipelines/smoke.yaml"),
        ("diff", "pipelines/smoke.yaml", "plan", "plan"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_looking_at_a_pipeline_loads_neither_prefect_nor_an_accelerator_library(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert loaded_by(temper(*arguments)) & {*ACCELERATOR, "prefect"} == set()


@pytest.mark.parametrize("arguments", [("gc", "--dry-run"), ("lineage", "sha256:0", "--forward"), ("runs",)])
def test_looking_at_a_store_loads_neither_prefect_nor_an_accelerator_library(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("HOME", str(tmp_path))
    ensure_marker(LocalStore(tmp_path / "store"))
    name, *rest = arguments
    command = temper(name, "pipelines/smoke.yaml", *rest, "--set", f"store={tmp_path / 'store'}")
    assert loaded_by(command) & {*ACCELERATOR, "prefect"} == set()


def test_every_stage_module_imports_where_prefect_is_not_installed():
    names = modules("stages")
    assert "stages.__main__" in names
    assert "jax" in loaded_by("sys.modules['prefect'] = None\n" + "\n".join(f"import {module}" for module in names))
