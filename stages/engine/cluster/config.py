"""Settings of the devices that train together."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from stages.contract import Strict

Size = Annotated[int, Field(ge=-1)]


class MeshConfig(Strict):
    """How the devices of a stage are arranged: their number is the product of the sizes; one may be -1, the rest."""

    data: Size = -1
    """Devices that compute different rows, each with a copy of the weights."""
    fsdp: Size = 1
    """Devices that compute different rows, each with a part of every weight that the others fetch when they use it."""
    expert: Size = 1
    """Devices that compute different rows, each with some of the experts, to which the others send their tokens."""
    sequence: Literal[1, 2, 4, 8, 16] = 1
    """Devices that compute different tokens of the same rows; divides 16, of which the rows' widths are multiples."""
    tensor: Size = 1
    """Devices that compute different heads and hidden units of the same tokens."""

    @model_validator(mode="after")
    def _check_sizes(self) -> "MeshConfig":
        sizes = self.model_dump()
        if 0 in sizes.values():
            name = next(name for name, size in sizes.items() if size == 0)
            raise ValueError(
                f"{name} is 0, but a mesh has at least 1 device along each axis; -1 means all that are left"
            )
        rest = [name for name, size in sizes.items() if size == -1]
        if len(rest) > 1:
            raise ValueError(f"{' and '.join(rest)} are -1, but only one of them can take the devices that are left")
        return self
