"""Secrets: where they are found, and that a process does not print them."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.errors import UserError
from stages.secrets import MASK, MaskedPieces, hider, is_secret, resolve_secret

PEM = "-----BEGIN KEY-----\nMIIEowIBAAKCAQEA\nend\n-----END KEY-----"

PRINTS = """
import logging, os, sys, traceback
logging.basicConfig(stream=sys.stderr)
from stages.secrets import set_secrets
hide = set_secrets({"HF_TOKEN": "secret://hf-token"})
token = os.environ["HF_TOKEN"]
print("printed", token, "é")
sys.stdout.buffer.write(f"bytes {token}\\n".encode())
print("on its own, no line end:", token, end="", flush=True)
logging.getLogger().warning("logged %s", token)
for part in (token[:4], token[4:6], token[6:], "\\n"):
    print(part, end="", flush=True, file=sys.stderr)
try:
    raise ValueError(f"raised {token}")
except ValueError as error:
    traceback.print_exc()
    print(hide(str(error)))
print("ends as if one began: hf_", end="")
sys.exit(f"left with {token}")
"""

SHOWS = """
import os, sys
from stages.secrets import set_secrets
set_secrets({"HF_TOKEN": "secret://hf-token"})
for percent in (10, 20):
    print(f"\\r{percent} %", end="", file=sys.stderr)
os._exit(0)
"""


def test_a_secret_is_a_variable_of_the_environment_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPER_SECRETS_DIR", str(tmp_path))
    (tmp_path / "hf-token").write_text("from the file\n")
    assert resolve_secret("secret://hf-token") == "from the file"
    monkeypatch.setenv("TEMPER_SECRET_HF_TOKEN", "from the environment")
    assert resolve_secret("secret://hf-token") == "from the environment"


def test_an_unknown_secret_is_an_error_that_names_every_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPER_SECRETS_DIR", str(tmp_path))
    (tmp_path / "hf-token").write_text("\n")
    with pytest.raises(UserError) as caught:
        resolve_secret("secret://hf-token")
    for place in ("TEMPER_SECRET_HF_TOKEN", f"{tmp_path}/hf-token", "/run/secrets/hf-token"):
        assert place in str(caught.value)


@pytest.mark.parametrize("reference", ["secret://", "secret://../etc/passwd", "secret://a/b", "hf-token"])
def test_what_is_no_name_is_refused_before_anything_is_read(reference: str) -> None:
    with pytest.raises(UserError, match="is no secret"):
        resolve_secret(reference)


def test_only_a_reference_is_a_secret() -> None:
    assert is_secret("secret://hf-token")
    assert not is_secret("see secret://hf-token")


def test_a_process_masks_its_secrets_in_all_that_python_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPER_SECRET_HF_TOKEN", "hf_ABCdef123")
    done = subprocess.run([sys.executable, "-c", PRINTS], capture_output=True, text=True, check=False)
    assert "hf_ABCdef123" not in done.stdout + done.stderr
    printed = f"printed {MASK} é\nbytes {MASK}\non its own, no line end: {MASK}raised {MASK}\n"
    assert done.stdout == f"{printed}ends as if one began: hf_"
    assert f"WARNING:root:logged {MASK}\n" in done.stderr
    assert f"logged {MASK}\n{MASK}\n" in done.stderr
    assert f"ValueError: raised {MASK}\n" in done.stderr
    assert done.stderr.endswith(f"left with {MASK}\n")


def test_what_is_no_secret_is_shown_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPER_SECRET_HF_TOKEN", "hf_ABCdef123")
    done = subprocess.run([sys.executable, "-c", SHOWS], capture_output=True, check=False)
    assert done.stderr == b"\r10 %\r20 %"


def test_the_lines_of_a_secret_of_several_lines_are_masked_too() -> None:
    hide = hider([PEM])
    assert hide(f"[{PEM}]") == f"[{MASK}]"
    assert hide("the key is MIIEowIBAAKCAQEA at the end") == f"the key is {MASK} at the end"


@pytest.mark.parametrize("secret", ["it's \\d", 'a "b" ', "tok\n", "schön"])
def test_a_secret_is_masked_as_messages_quote_it(secret: str) -> None:
    hide = hider([secret])
    for shown in (repr(secret), repr({"token": secret}), json.dumps({"token": secret}), secret.strip()):
        assert secret.strip() not in hide(shown)
        assert MASK in hide(shown)


@given(secrets=st.lists(st.text("ab.+", min_size=1, max_size=4), min_size=1, max_size=4), text=st.text("ab.+x"))
def test_no_secret_is_left_in_a_masked_text(secrets: list[str], text: str) -> None:
    # No asterisks: beside a mask it could not be told which of them are the mask's.
    left = hider(secrets)(text).split(MASK)
    assert not any(secret in part for secret in secrets for part in left)


@given(
    secrets=st.lists(st.text("abé\n", min_size=1, max_size=5), min_size=1, max_size=4),
    text=st.text("abé\nx", max_size=20),
    cuts=st.lists(st.integers(0, 30)),
)
def test_a_text_in_pieces_is_masked_as_the_whole(secrets: list[str], text: str, cuts: list[int]) -> None:
    data = text.encode()
    bounds = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    pieces = MaskedPieces(secrets)
    shown = [pieces.mask(data[start:end]) for start, end in itertools.pairwise(bounds)]
    assert b"".join([*shown, pieces.rest()]).decode() == hider(secrets)(text)
