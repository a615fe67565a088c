"""Makes `pipelines/tiny`: a random Llama of two layers with a tokenizer of bytes, for pipelines that only show the way.

Run `python tests/make_tiny_model.py` to write it again; a test compares the bytes.
"""

import json
from pathlib import Path

import numpy as np
import tokenizers
from safetensors.numpy import save_file
from tokenizers import AddedToken, decoders, models, pre_tokenizers

FOLDER = Path(__file__).parent.parent / "pipelines" / "tiny"
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
WIDTH, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_SIZE = 64, 128, 2, 4, 2, 16
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def write_tiny_model(folder: Path) -> None:
    """Writes config, weights, tokenizer and chat template; always the same bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate((*SPECIAL, *alphabet))}
    folder.mkdir(parents=True, exist_ok=True)
    _write_tokenizer(folder, vocabulary)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": WIDTH,
        "intermediate_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_SIZE,
        "vocab_size": len(vocabulary),
        "max_position_embeddings": 512,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "bos_token_id": vocabulary["<|im_start|>"],
        "eos_token_id": vocabulary["<|im_end|>"],
        "dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(_weights(len(vocabulary)), folder / "model.safetensors")


def _weights(vocab_size: int) -> dict[str, np.ndarray]:
    random = np.random.Generator(np.random.Philox(0))

    def matrix(rows: int, columns: int) -> np.ndarray:
        # Uniform draws are the same on every version of numpy.
        return ((random.random((rows, columns)) - 0.5) * (12 / columns) ** 0.5).astype(np.float32)

    tensors = {"model.embed_tokens.weight": matrix(vocab_size, WIDTH), "lm_head.weight": matrix(vocab_size, WIDTH)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        for name, rows, columns in (
            ("self_attn.q_proj", HEADS * HEAD_SIZE, WIDTH),
            ("self_attn.k_proj", KV_HEADS * HEAD_SIZE, WIDTH),
            ("self_attn.v_proj", KV_HEADS * HEAD_SIZE, WIDTH),
            ("self_attn.o_proj", WIDTH, HEADS * HEAD_SIZE),
            ("mlp.gate_proj", HIDDEN, WIDTH),
            ("mlp.up_proj", HIDDEN, WIDTH),
            ("mlp.down_proj", WIDTH, HIDDEN),
        ):
            tensors[f"{prefix}.{name}.weight"] = matrix(rows, columns)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{prefix}.{name}.weight"] = np.ones(WIDTH, np.float32)
    return tensors | {"model.norm.weight": np.ones(WIDTH, np.float32)}


def _write_tokenizer(folder: Path, vocabulary: dict[str, int]) -> None:
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    backend.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    write_tiny_model(FOLDER)
