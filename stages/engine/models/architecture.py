"""The sizes and choices that tell one decoder from another."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Architecture:
    """A decoder's shape, whatever its family.

    Attributes:
        num_layers: blocks.
        width: size of the residual stream.
        hidden: inner size of the gated MLP.
        num_heads: query heads.
        num_kv_heads: key and value heads; divides `num_heads`.
        head_size: size of one head.
        vocab_size: rows of the embedding.
        rope_theta: base of the rotary frequencies.
        norm_epsilon: added to the mean square in RMSNorm.
        tied_embeddings: whether the output projection is the embedding.
        max_positions: longest context that the model was trained for.
    """

    num_layers: int
    width: int
    hidden: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    vocab_size: int
    rope_theta: float
    norm_epsilon: float
    tied_embeddings: bool
    max_positions: int
