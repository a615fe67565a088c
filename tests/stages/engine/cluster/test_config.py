"""What is known to be wrong with a mesh before there are devices."""

import pytest
from pydantic import ValidationError

from stages.engine.cluster.config import MeshConfig


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"fsdp": -1}, "data and fsdp are -1, but only one of them can take the devices that are left"),
        ({"tensor": 0}, "tensor is 0, but a mesh has at least 1 device along each axis"),
        ({"expert": -2}, "greater than or equal to -1"),
        ({"sequence": 3}, "Input should be 1, 2, 4, 8 or 16"),
    ],
)
def test_sizes_that_no_devices_have_are_refused(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        MeshConfig.model_validate(sizes)
