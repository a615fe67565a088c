"""Settings of `export`."""

from typing import Literal

from stages.contract import StageConfigBase


class ExportConfig(StageConfigBase):
    """A model in the layout of Hugging Face, with its tokenizer, for other programs and for later stages."""

    format: Literal["merged", "adapter"] = "merged"
    """`merged` writes the whole model, its adapter worked into the weights; `adapter` the adapter alone, for PEFT."""
    dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    """Type of the written weights; they are made in float32 and rounded once."""
