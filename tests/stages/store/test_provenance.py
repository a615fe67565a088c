import re
import sys

from stages.store.provenance import collect_provenance


def test_it_names_code_packages_and_machine() -> None:
    found = collect_provenance()
    assert found.argv == tuple(sys.argv)
    assert found.git_revision is None or re.fullmatch(r"[0-9a-f]{40}(-dirty)?", found.git_revision)
    assert {"jax", "numpy"} <= found.packages.keys()
    assert found.python.startswith("3.")
    assert found.host


def test_outside_a_repository_or_without_git_there_is_no_revision(monkeypatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert collect_provenance().git_revision is None
