import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from stages import source_digest
from stages.catalog import STAGES

ROOT = Path(source_digest.__file__).parents[1]


def imported_by(file: Path) -> Iterator[str]:
    """What the parser of the language says that a file imports from here."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def closure(kind: str) -> set[str]:
    found: set[str] = set()
    waiting = [STAGES[kind].module]
    while waiting:
        name = waiting.pop().replace(".", "/") + ".py"
        if name.startswith("stages/") and (ROOT / name).is_file() and name not in found:
            found.add(name)
            waiting.extend(imported_by(ROOT / name))
    return found


@pytest.mark.parametrize("kind", STAGES)
def test_the_files_are_those_that_the_stage_imports_and_no_more(kind: str) -> None:
    files = source_digest.source_files(kind)
    assert set(files) == closure(kind)
    assert f"stages/{kind}/run.py" in files
    assert "stages/catalog.py" not in files


def test_every_kind_gets_the_same_files_whether_or_not_they_were_looked_at_before() -> None:
    source_digest._look_at.cache_clear()
    first = {kind: source_digest.source_files(kind) for kind in STAGES}
    assert {kind: source_digest.source_files(kind) for kind in STAGES} == first


def test_another_byte_in_a_file_is_another_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in source_digest.source_files("prepare"):
        copy = tmp_path / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((ROOT / name).read_bytes())
    before = source_digest.source_files("prepare")
    monkeypatch.setattr(source_digest, "ROOT", tmp_path)
    assert source_digest.source_files("prepare") == before
    changed = tmp_path / "stages/errors.py"
    changed.write_text(changed.read_text() + "\n# more\n")
    after = source_digest.source_files("prepare")
    assert {name for name in before if before[name] != after[name]} == {"stages/errors.py"}
    assert source_digest.source_digest(before) != source_digest.source_digest(after)


def test_a_stage_from_elsewhere_has_no_digest() -> None:
    assert source_digest.source_digest({}) == ""
