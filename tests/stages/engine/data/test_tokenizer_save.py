"""A tokenizer that was written is the same when it is read again."""

import dataclasses
import json
from pathlib import Path

import pytest

from stages.engine.data.tokenizer import Tokenizer, load_tokenizer
from stages.engine.data.tokenizer_save import save_tokenizer

SENTENCEPIECE = Path(__file__).parent / "sentencepiece"
TEXTS = ("", "  two  spaces", "Größe 12,5\n\tif x:", "漢字 😁", "a<sep>b</s><|im_end|>")


@pytest.fixture
def sentencepiece(tmp_path: Path) -> Tokenizer:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "tokenizer.model").write_bytes((SENTENCEPIECE / "bpe.model").read_bytes())
    return load_tokenizer(tmp_path / "source")


def written(tokenizer: Tokenizer, folder: Path) -> Tokenizer:
    folder.mkdir()
    save_tokenizer(folder, tokenizer)
    return load_tokenizer(folder)


def check_same(tokenizer: Tokenizer, again: Tokenizer) -> None:
    for text in TEXTS:
        assert again.encode(text) == tokenizer.encode(text)
        assert again.backend.encode(text).ids == tokenizer.backend.encode(text).ids  # with what others add
        assert again.decode(again.encode(text)) == tokenizer.decode(tokenizer.encode(text))
    facts = ("eos_ids", "eos_id", "bos_token", "pad_token", "chat_template")
    assert [getattr(again, fact) for fact in facts] == [getattr(tokenizer, fact) for fact in facts]


def test_one_from_a_folder(folder: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(folder)
    assert tokenizer.chat_template
    check_same(tokenizer, written(tokenizer, tmp_path / "out"))


def test_one_from_gguf_metadata(smollm2: Tokenizer, tmp_path: Path) -> None:
    check_same(smollm2, written(smollm2, tmp_path / "out"))


def test_one_from_sentencepiece(sentencepiece: Tokenizer, tmp_path: Path) -> None:
    again = written(sentencepiece, tmp_path / "out")
    check_same(sentencepiece, again)
    assert again.backend.encode("the").ids[0] == 1


def test_equal_tokenizers_give_equal_bytes(sentencepiece: Tokenizer, tmp_path: Path) -> None:
    again = written(sentencepiece, tmp_path / "a")
    written(again, tmp_path / "b")
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files == ["generation_config.json", "tokenizer.json", "tokenizer_config.json"]
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_generation_ends_at_every_end_token_and_the_tokenizer_s_own_comes_first(folder: Path, tmp_path: Path) -> None:
    tokenizer = dataclasses.replace(load_tokenizer(folder), eos_id=260)
    written(tokenizer, tmp_path / "out")
    generation = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert generation == {"bos_token_id": 256, "eos_token_id": [260, 257], "pad_token_id": 258}


def test_a_token_that_the_model_lacks_is_not_named(sentencepiece: Tokenizer, tmp_path: Path) -> None:
    again = written(dataclasses.replace(sentencepiece, bos_token=""), tmp_path / "out")
    assert (again.bos_token, again.pad_token) == ("", "")
    assert "bos_token_id" not in json.loads((tmp_path / "out" / "generation_config.json").read_text())
