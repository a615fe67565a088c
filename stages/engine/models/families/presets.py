"""The published sizes of every family, as their `config.json` gives them; the instruction-tuned where they differ."""

from collections.abc import Mapping
from dataclasses import replace

from stages.engine.models.architecture import (
    Architecture,
    Experts,
    LinearScaling,
    Llama3Scaling,
    RopeSettings,
    Window,
)

LLAMA3 = Architecture(
    num_layers=32,
    width=4096,
    hidden=14336,
    num_heads=32,
    num_kv_heads=8,
    head_size=128,
    vocab_size=128256,
    rope=RopeSettings(5e5),
    norm_epsilon=1e-5,
    tied_embeddings=False,
    max_positions=8192,
)
LLAMA31 = replace(LLAMA3, rope=RopeSettings(5e5, Llama3Scaling(8.0, 1.0, 4.0, 8192)), max_positions=131072)
LLAMA32 = replace(LLAMA31, rope=RopeSettings(5e5, Llama3Scaling(32.0, 1.0, 4.0, 8192)), tied_embeddings=True)
SMOLLM2 = replace(
    LLAMA3, head_size=64, vocab_size=49152, rope=RopeSettings(1e5), tied_embeddings=True, num_heads=9, num_kv_heads=3
)
QWEN25 = replace(
    LLAMA3, vocab_size=152064, rope=RopeSettings(1e6), norm_epsilon=1e-6, max_positions=32768, qkv_bias=True
)
SMALL_QWEN25 = replace(QWEN25, vocab_size=151936, tied_embeddings=True, num_kv_heads=2)
QWEN3 = replace(QWEN25, vocab_size=151936, qkv_bias=False, qk_norm=True, max_positions=40960)
SMALL_QWEN3 = replace(QWEN3, tied_embeddings=True)

GEMMA2 = Architecture(
    num_layers=26,
    width=2304,
    hidden=9216,
    num_heads=8,
    num_kv_heads=4,
    head_size=256,
    vocab_size=256000,
    rope=RopeSettings(1e4),
    norm_epsilon=1e-6,
    tied_embeddings=True,
    max_positions=8192,
    activation="gelu_tanh",
    norm_offset=1.0,
    post_norms=True,
    embedding_scale=2304**0.5,
    query_scale=256**-0.5,
    attention_soft_cap=50.0,
    final_soft_cap=30.0,
    window=Window(4096, 2),
)
GEMMA3 = replace(
    GEMMA2,
    num_kv_heads=1,
    vocab_size=262144,
    rope=RopeSettings(1e6),
    max_positions=32768,
    qk_norm=True,
    attention_soft_cap=None,
    final_soft_cap=None,
    window=Window(512, 6, RopeSettings(1e4)),
)
# The text part of a model that reads images too.
LARGE_GEMMA3 = replace(
    GEMMA3,
    vocab_size=262208,
    rope=RopeSettings(1e6, LinearScaling(8.0)),
    max_positions=131072,
    window=Window(1024, 6, RopeSettings(1e4)),
)


def _gemma(base: Architecture, num_layers: int, width: int, hidden: int, heads: tuple[int, int]) -> Architecture:
    """With the width of the stream, of which the scale of embeddings is a function, and query and key heads."""
    return replace(
        base,
        num_layers=num_layers,
        width=width,
        hidden=hidden,
        num_heads=heads[0],
        num_kv_heads=heads[1],
        embedding_scale=float(width) ** 0.5,
    )


def _gemma_27b(base: Architecture, num_layers: int, width: int, hidden: int) -> Architecture:
    """The largest ones have smaller heads, and scores scaled by another size than theirs."""
    sized = _gemma(base, num_layers, width, hidden, (32, 16))
    return replace(sized, head_size=128, query_scale=float(width // 32) ** -0.5)


PRESETS: Mapping[str, Architecture] = {
    "llama-3-8b": LLAMA3,
    "llama-3-70b": replace(LLAMA3, num_layers=80, width=8192, hidden=28672, num_heads=64),
    "llama-3.1-8b": LLAMA31,
    "llama-3.1-70b": replace(LLAMA31, num_layers=80, width=8192, hidden=28672, num_heads=64),
    "llama-3.1-405b": replace(LLAMA31, num_layers=126, width=16384, hidden=53248, num_heads=128),
    "llama-3.2-1b": replace(LLAMA32, num_layers=16, width=2048, hidden=8192, head_size=64),
    "llama-3.2-3b": replace(LLAMA32, num_layers=28, width=3072, hidden=8192, num_heads=24),
    "llama-3.3-70b": replace(LLAMA31, num_layers=80, width=8192, hidden=28672, num_heads=64),
    "smollm2-135m": replace(SMOLLM2, num_layers=30, width=576, hidden=1536),
    "smollm2-360m": replace(SMOLLM2, num_layers=32, width=960, hidden=2560, num_heads=15, num_kv_heads=5),
    "smollm2-1.7b": replace(
        SMOLLM2, num_layers=24, width=2048, hidden=8192, num_heads=32, num_kv_heads=32, rope=RopeSettings(1.3e5)
    ),
    "qwen2.5-0.5b": replace(SMALL_QWEN25, num_layers=24, width=896, hidden=4864, num_heads=14, head_size=64),
    "qwen2.5-1.5b": replace(SMALL_QWEN25, num_layers=28, width=1536, hidden=8960, num_heads=12),
    "qwen2.5-3b": replace(SMALL_QWEN25, num_layers=36, width=2048, hidden=11008, num_heads=16),
    "qwen2.5-7b": replace(QWEN25, num_layers=28, width=3584, hidden=18944, num_heads=28, num_kv_heads=4),
    "qwen2.5-14b": replace(QWEN25, num_layers=48, width=5120, hidden=13824, num_heads=40),
    "qwen2.5-32b": replace(QWEN25, num_layers=64, width=5120, hidden=27648, num_heads=40),
    "qwen2.5-72b": replace(QWEN25, num_layers=80, width=8192, hidden=29568, num_heads=64),
    "qwen3-0.6b": replace(SMALL_QWEN3, num_layers=28, width=1024, hidden=3072, num_heads=16),
    "qwen3-1.7b": replace(SMALL_QWEN3, num_layers=28, width=2048, hidden=6144, num_heads=16),
    "qwen3-4b": replace(SMALL_QWEN3, num_layers=36, width=2560, hidden=9728),
    "qwen3-8b": replace(QWEN3, num_layers=36, hidden=12288),
    "qwen3-14b": replace(QWEN3, num_layers=40, width=5120, hidden=17408, num_heads=40),
    "qwen3-32b": replace(QWEN3, num_layers=64, width=5120, hidden=25600, num_heads=64),
    "qwen3-30b-a3b": replace(
        QWEN3, num_layers=48, width=2048, hidden=6144, num_kv_heads=4, experts=Experts(128, 8, 768, normalized=True)
    ),
    "qwen3-235b-a22b": replace(
        QWEN3, num_layers=94, hidden=12288, num_heads=64, num_kv_heads=4, experts=Experts(128, 8, 1536, normalized=True)
    ),
    "gemma-2-2b": GEMMA2,
    "gemma-2-9b": _gemma(GEMMA2, 42, 3584, 14336, (16, 8)),
    "gemma-2-27b": _gemma_27b(GEMMA2, 46, 4608, 36864),
    "gemma-3-270m": _gemma(GEMMA3, 18, 640, 2048, (4, 1)),
    "gemma-3-1b": _gemma(GEMMA3, 26, 1152, 6912, (4, 1)),
    "gemma-3-4b": _gemma(LARGE_GEMMA3, 34, 2560, 10240, (8, 4)),
    "gemma-3-12b": _gemma(LARGE_GEMMA3, 48, 3840, 15360, (16, 8)),
    "gemma-3-27b": _gemma_27b(LARGE_GEMMA3, 62, 5376, 21504),
}
"""By name and size."""
