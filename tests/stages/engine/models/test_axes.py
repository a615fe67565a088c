"""How weights are divided by their names."""

import re

import pytest
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

from stages.engine.cluster.mesh import AXES
from stages.engine.models.axes import weight_spec
from stages.errors import UserError

MESH = AbstractMesh((1, 4, 2, 1, 2), AXES, axis_types=(AxisType.Auto,) * len(AXES))
FSDP, EXPERT, TENSOR = ("fsdp",), ("expert",), ("tensor",)


@pytest.mark.parametrize(
    ("name", "shape", "spec"),
    [
        ("embed.embedding", (6, 8), (TENSOR, FSDP)),
        ("lm_head.kernel", (8, 6), (FSDP, TENSOR)),
        ("blocks.attention.k_proj.kernel", (3, 8, 4), (None, FSDP, TENSOR)),
        ("blocks.attention.o_proj.kernel", (3, 4, 8), (None, TENSOR, FSDP)),
        ("blocks.mlp.down_proj.kernel", (3, 2, 8), (None, TENSOR, FSDP)),
        ("blocks.mlp.down_proj.kernel", (3, 6, 2, 8), (None, EXPERT, TENSOR, FSDP)),
        ("blocks.mlp.up_proj.kernel.array.qvalue", (3, 6, 8, 2), (None, EXPERT, FSDP, TENSOR)),
        ("blocks.mlp.router.kernel", (3, 8, 6), (None, FSDP, None)),
        ("blocks.mlp_norm.scale", (3, 8), ()),
        ("blocks.attention.q_proj.bias", (3, 8), ()),
        ("blocks.attention.q_proj.kernel_lora_a", (3, 8, 4), ()),
        ("blocks.mlp.up_proj.kernel_lora_b", (3, 4, 8), ()),
        ("blocks.mlp.up_proj.kernel_lora_a", (3, 6, 8, 1), (None, EXPERT, FSDP, None)),
        ("blocks.mlp.gate_proj.kernel_lora_b", (3, 6, 1, 2), (None, EXPERT, None, TENSOR)),
        ("blocks.mlp.down_proj.kernel_lora_a", (3, 6, 2, 1), (None, EXPERT, TENSOR, None)),
        ("blocks.mlp.down_proj.kernel_lora_b", (3, 6, 1, 8), (None, EXPERT, None, FSDP)),
        ("", (), ()),
    ],
)
def test_a_matrix_is_divided_by_its_name_and_what_is_small_is_whole(
    name: str, shape: tuple[int, ...], spec: tuple[tuple[str, ...] | None, ...]
) -> None:
    assert weight_spec(MESH, name, shape) == PartitionSpec(*spec)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        (
            "embed.embedding",
            (5, 8),
            "embed.embedding: its dimension `vocab` of 5 does not divide evenly by mesh.tensor = 2",
        ),
        ("blocks.mlp.gate_proj.kernel", (1, 6, 4), "dimension `embed` of 6 does not divide evenly by mesh.fsdp = 4"),
        (
            "blocks.mlp.up_proj.kernel",
            (1, 3, 8, 2),
            "`experts` of 3 does not divide evenly by mesh.expert = 2",
        ),
    ],
)
def test_a_dimension_that_does_not_divide_is_an_error_that_names_it(
    name: str, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        weight_spec(MESH, name, shape)
