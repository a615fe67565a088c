"""Real vocabularies: expected ids, the same ids from every kind of file, and in `transformers` after writing.

`sentencepiece/mistral_ids.json` is `[[text, SentencePieceProcessor(model_file=name).encode(text)], ...]` of each model,
by sentencepiece 0.2.3.
"""

import functools
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from real_models import gemma3_270m
from vocabularies import ggml_vocabulary, mistral_model, published_tokenizer, vectors_of

from stages.engine.data.gguf import open_gguf
from stages.engine.data.gguf_tokenizer import tokenizer_from_gguf
from stages.engine.data.sentencepiece import sentencepiece_backend
from stages.engine.data.sentencepiece_file import read_sentencepiece
from stages.engine.data.tokenizer import Tokenizer, load_tokenizer
from stages.engine.data.tokenizer_rows import fit_vocabulary
from stages.engine.data.tokenizer_save import save_tokenizer
from stages.errors import UserError

pytestmark = pytest.mark.slow

BYTE_LEVEL = ("gpt-2", "llama-bpe", "qwen2", "command-r", "deepseek-llm", "deepseek-coder", "falcon", "mpt", "refact")
SENTENCEPIECE = ("llama-spm", "phi-3")
MISTRAL_IDS: dict[str, list[tuple[str, list[int]]]] = json.loads(
    (Path(__file__).parent / "sentencepiece" / "mistral_ids.json").read_text(encoding="utf-8")
)
CHAT = "<|im_start|>user\n<start_of_turn>model<|eot_id|>[INST] x</s><unused3> \n\n\n  <div>"


@functools.cache
def from_gguf(path: Path) -> Tokenizer:
    return tokenizer_from_gguf(open_gguf(path).metadata, path.name)


@functools.cache
def from_folder(folder: Path) -> Tokenizer:
    return load_tokenizer(folder)


def from_mistral(name: str, folder: Path) -> Tokenizer:
    (folder / "tokenizer.model").write_bytes(mistral_model(name).read_bytes())
    return load_tokenizer(folder)


@pytest.mark.parametrize("name", [*BYTE_LEVEL, "starcoder", *SENTENCEPIECE])
def test_the_vectors_of_a_vocabulary_pass(name: str) -> None:
    tokenizer = from_gguf(ggml_vocabulary(name))
    vectors = vectors_of(name)
    assert len(vectors) > 40
    for text, ids in vectors:
        assert tokenizer.encode(text) == ids, repr(text)
        assert name in ("command-r", "mpt", "qwen2") or tokenizer.decode(ids) == text  # those three normalise


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("qwen35", "ggml-vocab-qwen35.gguf: tokenizer.ggml.pre is 'qwen35', which is not supported"),
        ("gpt-neox", "tokenizer.ggml.pre is missing"),
        ("gemma-4", "tokenizer.ggml.model is 'gemma4'"),
        ("bert-bge", "tokenizer.ggml.model is 'bert'"),
        ("nomic-bert-moe", "tokenizer.ggml.model is 't5'"),
    ],
)
def test_a_vocabulary_of_another_kind_is_refused_by_name(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        from_gguf(ggml_vocabulary(name))


@pytest.mark.parametrize(("published", "ggml"), [("llama3", "llama-bpe"), ("qwen3", "qwen2")])
def test_a_published_file_gives_the_ids_of_its_gguf_counterpart(published: str, ggml: str) -> None:
    tokenizer = from_folder(published_tokenizer(published))
    for text, ids in vectors_of(ggml):
        assert tokenizer.encode(text) == ids, repr(text)
        assert tokenizer.decode(ids) == text


def test_gemma_3_has_the_same_ids_in_both_of_its_forms() -> None:
    gguf, published = from_gguf(gemma3_270m()), from_folder(published_tokenizer("gemma3"))
    for text in [*(text for text, _ in vectors_of("llama-spm")), CHAT, " " * 40, "\n" * 33, "\t" * 32, "漢" + "é" * 9]:
        ids = gguf.encode(text)
        assert published.encode(text) == ids, repr(text)
        assert gguf.decode(ids, skip_special=False) == text
    assert gguf.backend.encode("x").ids[0] == published.backend.encode("x").ids[0] == 2


def test_gemma_3_s_placeholder_for_images_is_text_to_a_model_that_has_no_row_for_it() -> None:
    tokenizer = from_folder(published_tokenizer("gemma3"))
    assert tokenizer.encode("<image_soft_token>") == [262144]
    fitted = fit_vocabulary(tokenizer, 262144)
    assert max(fitted.encode("<image_soft_token>")) < 262144
    assert fitted.encode("<start_of_turn>user") == tokenizer.encode("<start_of_turn>user")


@pytest.mark.parametrize("name", list(MISTRAL_IDS))
def test_sentencepiece_models_of_mistral_give_the_ids_of_the_library(name: str) -> None:
    backend = sentencepiece_backend(read_sentencepiece(mistral_model(name)).pieces)
    for text, ids in MISTRAL_IDS[name]:
        assert backend.encode(text, add_special_tokens=False).ids == ids, repr(text)


SOURCES: dict[str, tuple[str, Callable[[Path], Tokenizer]]] = {
    "llama-bpe": ("llama", lambda _: from_gguf(ggml_vocabulary("llama-bpe"))),
    "llama-spm": ("llama", lambda _: from_gguf(ggml_vocabulary("llama-spm"))),
    "qwen2": ("qwen2", lambda _: from_gguf(ggml_vocabulary("qwen2"))),
    "qwen3": ("qwen3", lambda _: from_folder(published_tokenizer("qwen3"))),
    "gemma3": ("gemma3_text", lambda _: from_folder(published_tokenizer("gemma3"))),
    "gemma3-gguf": ("gemma3_text", lambda _: from_gguf(gemma3_270m())),
    "mistral": ("mistral", lambda folder: from_mistral("tokenizer.model.v1", folder)),
}


@pytest.mark.parametrize("name", list(SOURCES))
def test_what_is_written_is_the_same_tokenizer_here_and_in_transformers(name: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model_type, load = SOURCES[name]
    tokenizer = load(tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    save_tokenizer(out, tokenizer)
    (out / "config.json").write_text(json.dumps({"model_type": model_type}))
    again, theirs = load_tokenizer(out), transformers.AutoTokenizer.from_pretrained(out)
    for text in [*(text for text, _ in vectors_of("llama-spm")), CHAT]:
        ids = tokenizer.encode(text)
        assert again.encode(text) == theirs.encode(text, add_special_tokens=False) == ids, repr(text)
        assert theirs.encode(text) == tokenizer.backend.encode(text).ids, repr(text)
    assert (again.eos_ids, again.eos_id, again.bos_token) == (tokenizer.eos_ids, tokenizer.eos_id, tokenizer.bos_token)
    assert (theirs.eos_token, theirs.bos_token or "") == (tokenizer.eos_token, tokenizer.bos_token)
    assert theirs.chat_template == again.chat_template == tokenizer.chat_template
    settings = transformers.GenerationConfig.from_pretrained(out)
    assert set(settings.eos_token_id) == tokenizer.eos_ids
