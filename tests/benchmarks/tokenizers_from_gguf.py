"""How long it takes to make a tokenizer of a GGUF file, against reading the published JSON of the same vocabulary.

Run `PYTHONPATH=.:tests/probe python tests/benchmarks/tokenizers_from_gguf.py`. The times are of the processor, in
seconds; the ratio is what compares between machines.
"""

import time
from collections.abc import Callable
from pathlib import Path

import tokenizers
from real_models import gemma3_270m
from vocabularies import ggml_vocabulary, published_tokenizer

from stages.engine.data.gguf import open_gguf
from stages.engine.data.gguf_tokenizer import tokenizer_from_gguf

PAIRS: dict[str, Callable[[], Path]] = {
    "llama3": lambda: ggml_vocabulary("llama-bpe"),
    "qwen3": lambda: ggml_vocabulary("qwen2"),
    "gemma3": gemma3_270m,
}


def seconds(work: Callable[[], object]) -> float:
    """The best of three."""
    times = []
    for _ in range(3):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    for published, gguf in PAIRS.items():
        path, file = published_tokenizer(published) / "tokenizer.json", gguf()
        metadata = open_gguf(file).metadata
        json_seconds = seconds(lambda path=path: tokenizers.Tokenizer.from_file(str(path)))
        gguf_seconds = seconds(lambda metadata=metadata, file=file: tokenizer_from_gguf(metadata, file.name))
        header_seconds = seconds(lambda file=file: open_gguf(file))
        print(
            f"{published}: header {header_seconds:.2f} s, tokenizer {gguf_seconds:.2f} s, "
            f"tokenizer.json {json_seconds:.2f} s, ratio {(header_seconds + gguf_seconds) / json_seconds:.2f}"
        )


if __name__ == "__main__":
    main()
