"""Text is cut before merging as each family of models does it."""

import pytest

from stages.engine.data.tokenizer_splits import SPLITS


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("gpt-2", "I've 123 + x", ["I", "'ve", " 123", " +", " x"]),
        ("gpt-2", "a\n\n  b", ["a", "\n\n ", " b"]),
        ("smollm", "I've 123", ["I", "'ve", " ", "1", "2", "3"]),
        ("llama-bpe", "I'VE 12345", ["I", "'VE", " ", "123", "45"]),
        ("llama-bpe", "(x)\n\n y", ["(x", ")\n\n", " y"]),
        ("qwen2", "I'VE 123", ["I", "'VE", " ", "1", "2", "3"]),
        ("qwen2", "a \n b", ["a", " \n", " b"]),
        ("falcon", "a--b 12345", ["a", "--", "b", " ", "123", "45"]),
        ("deepseek-llm", "ab漢字12", ["ab", "漢字", "1", "2"]),
        ("deepseek-coder", "ab漢字 12\n", ["ab", "漢字", " ", "1", "2", "\n"]),
    ],
)
def test_words(name: str, text: str, words: list[str]) -> None:
    cut = SPLITS[name].pre_tokenizer().pre_tokenize_str(text)
    assert [text[start:end] for _, (start, end) in cut] == words


def test_letters_are_composed_first_where_the_model_was_trained_so() -> None:
    qwen = SPLITS["qwen2"].normalizer()
    assert qwen is not None
    assert qwen.normalize_str("e\u0301") == "é"
    assert SPLITS["llama-bpe"].normalizer() is None
