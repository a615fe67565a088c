"""Loads a checkpoint when told to; its memory is watched by `test_memory.py`."""

import sys
from pathlib import Path

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[5]))

from stages.contract import Quantization
from stages.engine.models.quantise import converters
from stages.engine.models.weights.load import open_checkpoint, read_weights


def main(path: Path, how: str) -> None:
    jax.block_until_ready(jax.numpy.ones(3) + 1)
    _tell("ready")
    sys.stdin.readline()
    checkpoint = open_checkpoint(path)
    dtype = np.dtype("float32") if how == "nf4" else jax.numpy.dtype(how)
    convert = converters(checkpoint.arch, Quantization(kind="nf4")) if how == "nf4" else {}
    weights = jax.block_until_ready(read_weights(checkpoint, dtype=dtype, convert=convert))
    _tell(str(sum(value.nbytes for value in weights.values())))
    sys.stdin.readline()


def _tell(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


main(Path(sys.argv[1]), sys.argv[2])
