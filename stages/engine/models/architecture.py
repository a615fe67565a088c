"""The sizes and choices that tell one decoder from another."""

from dataclasses import dataclass
from typing import Literal

from stages.engine.models.config import Precision


@dataclass(frozen=True)
class LinearScaling:
    """Positions are divided by `factor` (arXiv 2306.15595)."""

    factor: float


@dataclass(frozen=True)
class Llama3Scaling:
    """Frequencies that turn slowly are divided by `factor`, fast ones are kept, those between are blended.

    A frequency is slow when it turns fewer than `low_turns` times over `original_positions`, and fast when it turns
    more than `high_turns` times (arXiv 2407.21783, as in the published models' code).
    """

    factor: float
    low_turns: float
    high_turns: float
    original_positions: int

    def __post_init__(self) -> None:
        if not self.low_turns < self.high_turns:
            raise ValueError(f"slow frequencies turn up to {self.low_turns} times, fast ones from {self.high_turns} on")


@dataclass(frozen=True)
class RopeSettings:
    """A rotary embedding: the base of its frequencies, and how they are stretched to longer contexts."""

    theta: float
    scaling: LinearScaling | Llama3Scaling | None = None


@dataclass(frozen=True)
class Window:
    """Layers that see only near tokens.

    Attributes:
        size: tokens that a query sees, its own included.
        period: every layer of a number divisible by it, counted from 1, sees everything.
        rope: of these layers, where it is another than that of the others.
    """

    size: int
    period: int
    rope: RopeSettings | None = None


@dataclass(frozen=True)
class Experts:
    """A mixture of gated feed-forward layers in place of one.

    Attributes:
        count: experts of a layer.
        per_token: of them, those that a token goes to.
        hidden: inner size of each.
        normalized: whether the weights of a token's experts are scaled to a sum of 1.
    """

    count: int
    per_token: int
    hidden: int
    normalized: bool

    def __post_init__(self) -> None:
        if self.per_token > self.count:
            raise ValueError(f"a token goes to {self.per_token} experts of {self.count}")


@dataclass(frozen=True)
class Architecture:
    """A decoder's shape and choices, whatever its family; ValueError where they do not fit each other.

    Attributes:
        num_layers: blocks.
        width: size of the residual stream.
        hidden: inner size of the gated feed-forward layer.
        num_heads: query heads.
        num_kv_heads: key and value heads; divides `num_heads`.
        head_size: size of one head.
        vocab_size: rows of the embedding.
        rope: rotary embedding of queries and keys.
        norm_epsilon: added to the mean square in RMSNorm.
        tied_embeddings: whether the output projection is the embedding.
        max_positions: longest context that the model was trained for.
        activation: of the gate.
        qkv_bias: whether the projections of queries, keys and values have a bias.
        qk_norm: whether each head of queries and keys is normalised before it is rotated.
        norm_offset: added to every norm's scale.
        post_norms: whether a layer's outputs are normalised too before they join the residual stream.
        embedding_scale: multiplies the embedded tokens.
        query_scale: multiplies the scores of attention; none means head_size ** -0.5.
        attention_soft_cap: c in c * tanh(score / c), for scores of attention.
        final_soft_cap: the same for logits.
        compute_dtype: type that layers compute in, which trained weights are cast to where they are used.
        window: layers that see only near tokens.
        experts: mixture in place of the feed-forward layer.
    """

    num_layers: int
    width: int
    hidden: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    vocab_size: int
    rope: RopeSettings
    norm_epsilon: float
    tied_embeddings: bool
    max_positions: int
    activation: Literal["silu", "gelu_tanh"] = "silu"
    qkv_bias: bool = False
    qk_norm: bool = False
    norm_offset: float = 0.0
    post_norms: bool = False
    embedding_scale: float = 1.0
    query_scale: float | None = None
    attention_soft_cap: float | None = None
    final_soft_cap: float | None = None
    compute_dtype: Precision = "float32"
    window: Window | None = None
    experts: Experts | None = None

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"{self.num_heads} query heads cannot share {self.num_kv_heads} key heads evenly")
        if self.head_size % 2:
            raise ValueError(f"a head of {self.head_size} numbers has no pairs to rotate")
