"""Joining the processes that run a stage together, and leaving them."""

import jax

from stages.contract import ClusterRequest

SAVING_SECONDS = 12 * 3600
"""How long those that are done wait for process 0, which still has to store what they all made."""


def join(request: ClusterRequest) -> None:
    """Waits for all processes of the cluster; call it before anything touches a device.

    What goes between processes on CPUs goes through gloo. JAX leaves SIGTERM to this program.
    """
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # noqa: FBT003
    jax.distributed.initialize(
        request.coordinator,
        request.num_processes,
        request.process_id,
        cluster_detection_method="deactivate",
        coordinator_bind_address=request.coordinator,
        shutdown_timeout_seconds=SAVING_SECONDS,
    )


def leave() -> None:
    """Waits until every process has come to its end; does nothing where there is no cluster."""
    jax.distributed.shutdown()
