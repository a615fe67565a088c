"""A fresh adapter on a decoder that is already there, as stages put one on weights that they read."""

import jax.numpy as jnp
from flax import nnx

from stages.contract import Quantization
from stages.engine.models.config import LoraConfig
from stages.engine.models.lora import adapted_decoder, split
from stages.engine.models.quantise import converters
from stages.engine.models.transformer import Decoder


def attach_lora(model: Decoder, config: LoraConfig, seed: int, quantization: Quantization | None = None) -> None:
    """Puts an adapter on the blocks of a base without one, and stores their linear layers as `quantization` says."""
    weights = split(model, nnx.Param)[1]
    for name, convert in converters(model.arch, quantization).items() if quantization else ():
        weights |= {f"{name}.{part}": jnp.asarray(value) for part, value in convert(weights.pop(name)).items()}
    model.blocks = adapted_decoder(model.arch, weights, config, seed, quantization).blocks
