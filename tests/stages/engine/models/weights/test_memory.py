"""How much memory loading takes beside what stays, in a process that does nothing else."""

import re
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

import jax.numpy as jnp
import pytest
from real_models import smollm2

from stages.engine.data.gguf import open_gguf
from stages.engine.data.gguf_tokenizer import tokenizer_from_gguf
from stages.engine.models.weights.gguf_checkpoint import gguf_checkpoint
from stages.engine.models.weights.load import read_weights
from stages.engine.models.weights.save import save_hf

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CHILD = Path(__file__).parent / "load_once.py"
ROOT = Path(__file__).parents[5]
LARGEST_BYTES = 49152 * 576 * 4
"""The embedding of SmolLM2 in float32."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """SmolLM2 as a folder of ours in two types."""
    file = open_gguf(smollm2())
    checkpoint, tokenizer = gguf_checkpoint(file), tokenizer_from_gguf(file.metadata, str(file.path))
    weights, found = read_weights(checkpoint), dict[str, Path]()
    for dtype in ("float32", "bfloat16"):
        found[dtype] = tmp_path_factory.mktemp(dtype)
        save_hf(found[dtype], checkpoint.family, checkpoint.arch, weights.items(), tokenizer, dtype=jnp.dtype(dtype))
    return found


def memory_of(process: subprocess.Popen[str]) -> int:
    """Bytes of a process that no file stands behind."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def extra_bytes(path: Path, how: str) -> int:
    """The largest rise of memory while it loads, less the model's own bytes."""
    command = [sys.executable, str(CHILD), str(path), how]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        lines = [child.stdout.readline()]
        assert lines == ["ready\n"]
        before = peak = memory_of(child)
        reader = Thread(target=lambda: lines.append(child.stdout.readline() if child.stdout else ""))
        child.stdin.write("\n")
        child.stdin.flush()
        reader.start()
        while reader.is_alive():
            peak = max(peak, memory_of(child))
            time.sleep(0.001)
        child.stdin.write("\n")
    return peak - before - int(lines[1])


@pytest.mark.parametrize("how", ["float32", "bfloat16", "nf4"])
def test_from_gguf_loading_takes_less_than_a_tensor_and_a_third_beside_the_model(how: str) -> None:
    assert extra_bytes(smollm2(), how) < 1.3 * LARGEST_BYTES


@pytest.mark.parametrize("stored", ["float32", "bfloat16"])
@pytest.mark.parametrize("how", ["float32", "bfloat16"])
def test_from_a_folder_loading_takes_less_than_a_tensor_and_a_third_beside_the_model(
    folders: dict[str, Path], stored: str, how: str
) -> None:
    assert extra_bytes(folders[stored], how) < 1.3 * LARGEST_BYTES * jnp.dtype(how).itemsize // 4
