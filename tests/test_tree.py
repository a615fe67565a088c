"""What may lie in the tree: sizes of files, names, and nothing that ties it to one machine."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("flows", "tasks", "stages", "pipelines", "tests", "infra", "docs", ".ci")
PRODUCT = ("flows", "tasks", "stages", "pipelines")
LOCKS = ROOT / "infra" / "locks"

# Written so that this file passes its own test.
REGISTRIES = re.compile(r"pypi\.|pythonhosted\.|registry\.npm|[:]//\S*/simple\b|index-url +http")
HOMES = "home|root|Users|work|mnt|opt"
MACHINE_PATHS = re.compile(rf"(?<![\w.$}}/-])/(?:{HOMES})/[\w.]")


def files(*folders: str, ending: str = "") -> Iterator[Path]:
    for folder in folders:
        for place, names, leaves in os.walk(ROOT / folder):
            names[:] = [name for name in names if name != "__pycache__"]
            yield from (Path(place, leaf) for leaf in leaves if leaf.endswith(ending))


def everything() -> Iterator[Path]:
    yield from files(*FOLDERS)
    yield from (path for path in ROOT.iterdir() if path.is_file() and path.name != ".git")


def text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in everything()
        for number, line in enumerate((text(path) or "").splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_file_carries_the_address_of_a_package_registry():
    assert lines_with(REGISTRIES) == []


def test_no_file_carries_a_path_of_one_machine():
    assert lines_with(MACHINE_PATHS) == []
    assert lines_with(re.compile(re.escape(f"{ROOT}/"))) == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("see /" + "home/someone/x", True),
        ("'/" + "root/.cache'", True),
        ("stages/work/x", False),
        ("gs://b/root/x", False),
    ],
)
def test_the_search_for_machine_paths_finds_them_and_leaves_others_alone(line: str, found: bool):
    assert bool(MACHINE_PATHS.search(line)) is found


def test_no_python_file_is_longer_than_400_lines():
    long = [
        f"{path.relative_to(ROOT)}: {count}" for path in files(*FOLDERS, ending=".py") if (count := lines(path)) > 400
    ]
    assert long == []


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_no_file_is_larger_than_a_mebibyte():
    assert [str(path.relative_to(ROOT)) for path in everything() if path.stat().st_size > 2**20] == []


def test_code_lies_in_the_four_packages_and_their_tests_only():
    assert list(files("infra", "docs", ".ci", ending=".py")) == []
    assert list(ROOT.glob("*.py")) == []


def test_no_module_is_named_after_nothing():
    nameless = {"utils", "util", "helpers", "helper", "common", "misc", "v2"}
    assert [path for path in files(*PRODUCT, ending=".py") if nameless & set(path.with_suffix("").parts)] == []


@pytest.mark.parametrize("lock", sorted(LOCKS.glob("*.txt")), ids=lambda lock: lock.name)
def test_every_locked_package_has_one_version_and_a_hash(lock: Path):
    entries = lock.read_text().replace("\\\n", " ").splitlines()
    packages = [entry for entry in entries if entry and not entry.lstrip().startswith("#")]
    assert packages
    assert [entry for entry in packages if not re.match(r"[\w.-]+(\[[\w,-]+\])?==\S+.* --hash=sha256:", entry)] == []


def test_locks_that_are_installed_together_agree():
    versions: dict[str, str] = {}
    for lock in ("cpu", "dev", "demo", "parity", "server"):
        for name, version in re.findall(r"^([\w.-]+)==(\S+)", (LOCKS / f"{lock}.txt").read_text(), re.MULTILINE):
            assert versions.setdefault(name, version) == version, f"{lock}.txt: {name}"
