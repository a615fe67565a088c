"""A tokenizer read from a model's folder."""

import json
from pathlib import Path

import pytest
from pydantic import JsonValue

from stages.engine.data.tokenizer import load_tokenizer
from stages.errors import UserError


def change(path: Path, changes: dict[str, JsonValue]) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_ids_are_those_of_the_folder(folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    assert (tokenizer.eos_ids, tokenizer.eos_id) == (frozenset({257, 260}), 257)
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.origin) == ("<s>", "</s>", str(folder))
    assert tokenizer.encode("<s>") == [256]


def test_nothing_is_cut_even_if_the_file_says_so(folder: Path) -> None:
    assert json.loads((folder / "tokenizer.json").read_text())["truncation"]["max_length"] == 4
    tokenizer = load_tokenizer(folder)
    assert len(tokenizer.encode("twelve chars")) == 12
    assert tokenizer.decode(tokenizer.encode("twelve chars")) == "twelve chars"


def test_a_template_file_comes_before_the_one_in_the_settings(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("from the file")
    assert load_tokenizer(folder).chat_template == "from the file"


def test_the_default_is_taken_of_several_templates(folder: Path) -> None:
    templates: JsonValue = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    change(folder / "tokenizer_config.json", {"chat_template": templates})
    assert load_tokenizer(folder).chat_template == "plain"


def test_a_single_end_token_of_the_generation_settings_is_enough(folder: Path) -> None:
    change(folder / "tokenizer_config.json", {"eos_token": None})
    change(folder / "generation_config.json", {"eos_token_id": 260})
    tokenizer = load_tokenizer(folder)
    assert (tokenizer.eos_ids, tokenizer.eos_id) == (frozenset({260}), 260)


def test_a_model_without_template_or_generation_settings_is_read(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    change(folder / "tokenizer_config.json", {"chat_template": None})
    tokenizer = load_tokenizer(folder)
    assert tokenizer.chat_template is None
    assert tokenizer.eos_ids == {257}


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("tokenizer.json", None, "no tokenizer; there is neither tokenizer.json nor tokenizer.model"),
        ("tokenizer.json", '{"model": ', "tokenizer.json: not a readable tokenizer: .*EOF while parsing"),
        ("tokenizer.json", "{}", "tokenizer.json: not a readable tokenizer: .*Model missing"),
        ("tokenizer.json", '{"model": {"type": "Guess"}}', "tokenizer.json: not a readable tokenizer: .*ModelUntagged"),
        ("tokenizer_config.json", None, "tokenizer_config.json.*No such file"),
        ("tokenizer_config.json", "[]", "tokenizer_config.json: Input should be an object"),
        (
            "tokenizer_config.json",
            '{"chat_template": 5, "add_bos_token": "?"}',
            "add_bos_token: .*; chat_template.str: ",
        ),
        ("tokenizer_config.json", '{"eos_token": "<end>"}', "the vocabulary has no '<end>'"),
        (
            "generation_config.json",
            '{"eos_token_id": "</s>"}',
            "generation_config.json: eos_token_id.*: Input should be a valid integer",
        ),
        (
            "generation_config.json",
            '{"eos_token_id": -1}',
            "eos_token_id.*: Input should be greater than or equal to 0",
        ),
        ("generation_config.json", '{"eos_token_id": [257, 999]}', "eos_token_id: the vocabulary has no token 999"),
        ("chat_template.jinja", b"\xff", "chat_template.jinja: .*can't decode byte 0xff"),
    ],
)
def test_a_bad_file_is_named(folder: Path, file: str, content: str | bytes | None, message: str) -> None:
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(UserError, match=message):
        load_tokenizer(folder)


def test_a_model_without_end_token_is_refused(folder: Path) -> None:
    change(folder / "tokenizer_config.json", {"eos_token": None})
    change(folder / "generation_config.json", {"eos_token_id": None})
    with pytest.raises(UserError, match="names an end token"):
        load_tokenizer(folder)
