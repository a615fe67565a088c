"""The base of every record that is read from outside."""

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """A frozen record that refuses unknown keys, coercions, NaN and infinity."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )
