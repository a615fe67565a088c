"""Functions compiled for all devices of a cluster."""

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import jax

from stages.engine.cluster.mesh import Cluster

Arguments = TypeVarTuple("Arguments")
ResultT = TypeVar("ResultT")


def compiled(cluster: Cluster, function: Callable[[*Arguments], ResultT]) -> Callable[[*Arguments], ResultT]:
    """The function as one program, which every device runs on its part of the arguments.

    The arguments' placement and what the function says by `constrain` tell the compiler how the work is divided; what
    has to be exchanged for that, it finds out (arXiv 2105.04663).
    """
    program = jax.jit(function)
    mesh = cluster.mesh
    if mesh is None:
        return program

    def run(*arguments: *Arguments) -> ResultT:
        with jax.set_mesh(mesh):
            return program(*arguments)

    return run
