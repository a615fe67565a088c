"""Settings of sampling."""

from typing import Annotated

from pydantic import Field

from stages.contract import Strict


class SamplingConfig(Strict):
    """The distribution that responses are drawn from."""

    temperature: Annotated[float, Field(ge=0)]
    """Divides the logits; 0 takes the most likely token."""
    max_response_tokens: Annotated[int, Field(ge=1)]
    """Longest response, the end token included."""
