import importlib.metadata
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.spec import strict_identity
from pipelines.spec.diagnostics import SpecError
from pipelines.spec.nodes import Pipeline, Resources
from pipelines.spec.plan import make_plan
from pipelines.spec.strict_identity import strict_part
from stages.store.hardware import cpu_models, gpu_models
from stages.store.local import LocalStore

Load = Callable[..., Pipeline]
CPU = Resources("cpu", share=False, python=None)
STRICT = {"  sft:\n    uses: sft\n": "  sft:\n    uses: sft\n    identity: strict\n"}


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def key(pipeline: Pipeline, store: LocalStore, stage: str = "sft") -> str:
    found = make_plan(pipeline, store).nodes[stage].key
    assert found is not None
    return found


def test_a_strict_stage_has_a_key_of_its_own_and_others_keep_theirs(load: Load, store: LocalStore) -> None:
    assert key(load(replace=STRICT), store) != key(load(), store)
    assert key(load(replace=STRICT), store, "eval_base") == key(load(), store, "eval_base")
    payload = make_plan(load(replace=STRICT), store).nodes["sft"].payload
    assert json.loads(payload or b"")["strict"] == strict_part("sft", CPU)


def test_all_stages_are_strict_by_default_when_asked(load: Load, store: LocalStore) -> None:
    strict = load("defaults={identity: strict}")
    assert all(key(strict, store, stage) != key(load(), store, stage) for stage in ("data", "sft", "eval_base"))


def test_source_compiler_and_hardware_change_a_strict_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [strict_part("sft", CPU), strict_part("grpo", CPU), strict_part("sft", replace(CPU, num_processes=2))]
    parts.append(strict_part("sft", replace(CPU, accelerator="tpu")))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: f"{name}-9")
    parts.append(strict_part("sft", CPU))
    assert len({json.dumps(part) for part in parts}) == len(parts)


def test_hardware_is_told_by_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu_info = tmp_path / "cpuinfo"
    cpu_info.write_text("processor\t: 0\nmodel name\t: Fast 3000\n\nprocessor\t: 1\nmodel name\t: Fast 3000\n")
    for name in ("0000:01", "0000:02"):
        folder = tmp_path / "driver" / "nvidia" / "gpus" / name
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t Card {name[-1]}\nIRQ: 3\n")
    monkeypatch.setattr(strict_identity, "cpu_models", lambda: cpu_models(tmp_path))
    monkeypatch.setattr(strict_identity, "gpu_models", lambda: gpu_models(tmp_path))
    assert strict_part("sft", CPU)["hardware"].endswith(" Fast 3000, 2 threads")
    assert strict_part("sft", replace(CPU, accelerator="gpu"))["hardware"] == "1 x Card 1, Card 2"
    assert strict_part("sft", replace(CPU, accelerator="gpu", count=1))["hardware"] == "1 x Card 1"


def test_another_interpreter_has_no_strict_identity(load: Load, store: LocalStore) -> None:
    pipeline = load("stages.sft.resources={python: /usr/bin/python3}", replace=STRICT)
    with pytest.raises(SpecError, match=r"stages.sft: `identity: strict` needs the interpreter that runs the pipeline"):
        make_plan(pipeline, store)
