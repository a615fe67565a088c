"""A decoder before it has weights."""

from flax import nnx

from stages.engine.models.architecture import Architecture
from stages.engine.models.paths import dotted
from stages.engine.models.transformer import Decoder
from stages.engine.models.weights.checkpoint import Shape


def abstract_decoder(arch: Architecture) -> Decoder:
    """Its structure, with shapes where weights will be."""
    return nnx.eval_shape(lambda: Decoder(arch, rngs=nnx.Rngs(0)))


def weight_shapes(arch: Architecture) -> dict[str, Shape]:
    """Shapes of the weights by path, layers stacked."""
    return {dotted(path): leaf.shape for path, leaf in nnx.state(abstract_decoder(arch)).flat_state()}
