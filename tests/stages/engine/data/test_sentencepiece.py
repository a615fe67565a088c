"""SentencePiece models against the ids that the project's own library gives.

`sentencepiece/` was made with sentencepiece 0.2.3. Both models were trained by `SentencePieceTrainer.train` on random
lines of 25 English words and a few with other letters, with `user_defined_symbols=["<sep>"]`: `bpe.model` with
`byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, control_symbols=["[INST]"]`,
`unigram.model` with a `normalization_rule_tsv` that maps two wide letters, a ligature, tab and newline. `ids.json` is
`[[text, SentencePieceProcessor(model_file=name).encode(text)], ...]` of each.
"""

import json
import shutil
from pathlib import Path

import pytest
import tokenizers
from pydantic import JsonValue

from stages.engine.data.sentencepiece import sentencepiece_backend
from stages.engine.data.sentencepiece_file import read_sentencepiece
from stages.engine.data.tokenizer import load_tokenizer
from stages.errors import UserError

MODELS = Path(__file__).parent / "sentencepiece"
IDS: dict[str, list[tuple[str, list[int]]]] = json.loads((MODELS / "ids.json").read_text(encoding="utf-8"))


def backend(name: str) -> tokenizers.Tokenizer:
    return sentencepiece_backend(read_sentencepiece(MODELS / f"{name}.model").pieces)


def ids(tokenizer: tokenizers.Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(MODELS / "bpe.model", tmp_path / "tokenizer.model")
    return tmp_path


def write_config(folder: Path, config: dict[str, JsonValue]) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("name", ["bpe", "unigram"])
def test_ids_are_those_of_the_library(name: str) -> None:
    tokenizer = backend(name)
    assert {text: ids(tokenizer, text) for text, _ in IDS[name]} == dict(IDS[name])


@pytest.mark.parametrize("text", ["", " ", " the quick", "the  quick   brown ", "漢字 and 😁", "wizards\nquietly\tvex"])
def test_merges_with_bytes_give_the_text_back(text: str) -> None:
    tokenizer = backend("bpe")
    assert tokenizer.decode(ids(tokenizer, text)) == text


def test_a_user_defined_piece_is_one_token_and_text_starts_anew_after_it() -> None:
    tokenizer = backend("bpe")
    assert tokenizer.encode("a<sep>b", add_special_tokens=False).tokens == ["▁a", "<sep>", "▁b"]


def test_a_control_piece_is_special(folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    assert tokenizer.encode("[INST]") == [3]
    assert tokenizer.decode(tokenizer.encode("[INST]old"), skip_special=True) == "old"


def test_start_and_end_are_those_of_the_file_when_no_settings_name_others(folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.eos_ids) == ("<s>", "</s>", frozenset({2}))
    assert tokenizer.pad_token == ""
    write_config(folder, {"eos_token": "[INST]", "pad_token": "<unk>"})
    tokenizer = load_tokenizer(folder)
    assert (tokenizer.eos_id, tokenizer.pad_token) == (3, "<unk>")


@pytest.mark.parametrize(
    ("config", "starts"), [({}, True), ({"add_bos_token": True}, True), ({"add_bos_token": False}, False)]
)
def test_other_programs_are_told_whether_a_sequence_begins_with_the_start_token(
    folder: Path, config: dict[str, JsonValue], starts: bool
) -> None:
    write_config(folder, config)
    tokenizer = load_tokenizer(folder)
    plain = tokenizer.encode("the fox")
    assert tokenizer.backend.encode("the fox").ids == ([1, *plain] if starts else plain)


def test_tokens_added_in_the_settings_come_after_the_pieces(folder: Path) -> None:
    added: JsonValue = {
        "1": {"content": "<s>", "special": True},
        "401": {"content": "<tool>", "special": False},
        "400": {"content": "<|im_end|>", "special": True},
    }
    write_config(folder, {"added_tokens_decoder": added, "eos_token": "<|im_end|>"})
    tokenizer = load_tokenizer(folder)
    assert tokenizer.encode("<tool><|im_end|>") == [401, 400]
    assert tokenizer.eos_id == 400
    assert tokenizer.decode([401, 400]) == "<tool>"


def test_an_added_token_with_an_id_that_it_cannot_have_is_named(folder: Path) -> None:
    write_config(folder, {"added_tokens_decoder": {"500": {"content": "<tool>"}}})
    with pytest.raises(
        UserError, match=r"gives '<tool>' the id 500, but it gets 400 after the pieces of tokenizer.model"
    ):
        load_tokenizer(folder)


def field(number: int, value: int | bytes) -> bytes:
    """One field of a protocol buffer, of at most 127 bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + bytes([len(value)]) + value


def varint(value: int) -> bytes:
    head = bytes([value & 0x7F | (0x80 if value > 0x7F else 0)])
    return head + varint(value >> 7) if value > 0x7F else head


UNK, END = field(1, field(1, b"<unk>") + field(3, 2)), field(1, field(1, b"</s>") + field(3, 3))


def test_what_the_file_leaves_out_has_the_format_s_defaults(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(UNK + END)
    file = read_sentencepiece(tmp_path / "x")
    assert (file.bos_id, file.eos_id) == (1, None)
    pieces = file.pieces
    assert (pieces.is_unigram, pieces.add_dummy_prefix, pieces.remove_extra_whitespaces) == (True, True, True)
    assert (pieces.texts, pieces.scores, pieces.charsmap) == (["<unk>", "</s>"], [0.0, 0.0], b"")


def test_a_model_without_start_token_has_a_negative_id_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(UNK + field(2, field(41, (1 << 64) - 1) + field(42, 0)))
    file = read_sentencepiece(tmp_path / "x")
    assert (file.bos_id, file.eos_id) == (None, 0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "none of its 0 pieces is the unknown one"),
        (END, "none of its 1 pieces is the unknown one"),
        (UNK[:-3], "ends 3 bytes too early"),
        (UNK + b"\x80", "index out of range"),
        (UNK + b"\xff" * 99, "longer than it can be"),
        (UNK + field(1, field(2, b"abcd")), "a number stands where text is expected"),
        (UNK + field(3, field(2, b"\xff\xff\xff\x7f")), "table of replacements is damaged"),
        (b"version https://git-lfs", "no field that the format knows"),
        (field(1, 5), "a number stands where text is expected"),
        (UNK + field(2, field(3, b"x")), "text stands where a number is expected"),
        (UNK + field(2, field(3, 3)), "its type is word, supported are unigram and bpe"),
        (UNK + field(2, field(24, 1)), "treat_whitespace_as_suffix"),
        (UNK + field(3, field(5, 0)), "escape_whitespaces"),
        (UNK + field(1, field(1, b"\xff")), "'utf-8' codec can't decode"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"tokenizer.model: not a readable SentencePiece model: .*{message}"):
        read_sentencepiece(path)
