"""What settings of `distillation` must fit each other."""

import pytest
from pydantic import ValidationError

from stages.distillation.config import JsdConfig, TeacherConfig
from stages.engine.cluster.config import MeshConfig


def test_a_mesh_of_the_teacher_needs_devices_to_arrange() -> None:
    assert TeacherConfig(num_devices=2, mesh=MeshConfig(tensor=2)).mesh.tensor == 2
    with pytest.raises(ValidationError, match="the teacher has no devices of its own to arrange; set num_devices"):
        TeacherConfig(mesh=MeshConfig(tensor=2))


@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_a_mixture_of_one_alone_is_refused(beta: float) -> None:
    with pytest.raises(ValidationError, match="beta"):
        JsdConfig(kind="jsd", beta=beta)
