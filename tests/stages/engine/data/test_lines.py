"""Lines of a file by their number."""

from pathlib import Path

import pytest

from stages.engine.data import lines
from stages.engine.data.lines import Lines
from stages.errors import StorageError


@pytest.mark.parametrize("chunk", [1, 2, 3, 1 << 23])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\n\nbcd", [b"a", b"", b"bcd"]),
        ("é\u2028ü\n\n".encode(), ["é\u2028ü".encode(), b""]),
    ],
)
def test_lines_end_at_newlines_wherever_the_file_is_cut_to_find_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, expected: list[bytes], chunk: int
) -> None:
    monkeypatch.setattr(lines, "_CHUNK", chunk)
    (tmp_path / "file").write_bytes(content)
    found = Lines(tmp_path / "file")
    assert len(found) == len(expected)
    assert list(found) == expected
    with pytest.raises(IndexError):
        found[len(expected)]


def test_a_file_that_cannot_be_read_is_an_error_of_storage(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot read"):
        Lines(tmp_path / "none")
