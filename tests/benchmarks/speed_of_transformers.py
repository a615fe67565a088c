"""Passes of the decoder of `transformers` on PyTorch, for `model_speed.py`; needs the packages of `parity.txt`."""

# pyright: reportMissingImports=false

import numpy as np
import torch
from speed_worker import Sizes, serve, sizes_given
from transformers import Qwen3Config, Qwen3ForCausalLM


def make_model(sizes: Sizes) -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    config = Qwen3Config(
        num_hidden_layers=sizes.num_layers,
        hidden_size=sizes.width,
        intermediate_size=sizes.hidden,
        num_attention_heads=sizes.num_heads,
        num_key_value_heads=sizes.num_kv_heads,
        head_dim=sizes.head_size,
        vocab_size=sizes.vocab_size,
        tie_word_embeddings=True,
        use_cache=False,
    )
    return Qwen3ForCausalLM(config)


def main() -> None:
    sizes = sizes_given()
    model = make_model(sizes)
    ids = torch.from_numpy(np.random.default_rng(0).integers(0, sizes.vocab_size, (sizes.rows, sizes.tokens)))

    def forward() -> None:
        with torch.no_grad():
            model(input_ids=ids, labels=ids).loss.item()

    def both() -> None:
        model.zero_grad(set_to_none=True)
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        loss.item()

    serve({"forward": forward, "both": both})


if __name__ == "__main__":
    main()
