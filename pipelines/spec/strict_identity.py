"""What `identity: strict` adds to a key: what may change the last bits of a result beside settings and inputs."""

import importlib.metadata
import os
import platform
from pathlib import Path

from pipelines.spec.nodes import Resources
from stages.source_digest import source_digest, source_files

_CPU_INFO = Path("/proc/cpuinfo")
_GPU_FOLDER = Path("/proc/driver/nvidia/gpus")


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
            models = _values(_CPU_INFO, "model name")
            return f"{platform.machine()} {models[0] if models else 'cpu'}, {len(models)} threads"
        case "gpu":
            files = sorted(_GPU_FOLDER.glob("*/information"))
            models = [model for file in files for model in _values(file, "Model")]
            return ", ".join(models[: resources.count]) or "gpu"
        case "tpu":
            return os.environ.get("TPU_ACCELERATOR_TYPE", "tpu")


def _values(file: Path, name: str) -> list[str]:
    """The values of a field in a file of `name : value` lines; none where the system has no such file."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return []
    pairs = (line.partition(":") for line in lines)
    return [value.strip() for key, _, value in pairs if key.strip() == name]
