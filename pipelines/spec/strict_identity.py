"""What `identity: strict` adds to a key: what may change the last bits of a result beside settings and inputs."""

import importlib.metadata
import os
import platform

from pipelines.spec.nodes import Resources
from stages.source_digest import source_digest, source_files
from stages.store.hardware import cpu_models, gpu_models


def strict_part(kind: str, resources: Resources) -> dict[str, str]:
    """The stage's source, the hardware of this machine that it would use, and the version of the compiler."""
    return {
        "source": source_digest(source_files(kind)),
        "hardware": f"{resources.num_processes} x {_hardware(resources)}",
        "jaxlib": importlib.metadata.version("jaxlib"),
    }


def _hardware(resources: Resources) -> str:
    match resources.accelerator:
        case "cpu":
            models = cpu_models()
            return f"{platform.machine()} {models[0] if models else 'cpu'}, {len(models)} threads"
        case "gpu":
            return ", ".join(gpu_models()[: resources.count]) or "gpu"
        case "tpu":
            return os.environ.get("TPU_ACCELERATOR_TYPE", "tpu")
