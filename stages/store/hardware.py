"""The machine that a stage runs on, as it shows itself."""

import os
import platform
from pathlib import Path

PROC = Path("/proc")
DEV = Path("/dev")


def describe_hardware(proc: Path = PROC, dev: Path = DEV) -> str:
    """For example `x86_64, 2 CPUs, 24 GiB, 8 x NVIDIA H100`; what cannot be read is left out.

    The accelerators are those that the machine has, whatever a stage took of them.
    """
    return ", ".join([platform.machine(), f"{os.cpu_count()} CPUs", *_memory(proc), *_gpus(proc), *_tpus(dev)])


def cpu_models(proc: Path = PROC) -> list[str]:
    """The model of each hardware thread."""
    return _values(proc / "cpuinfo", "model name")


def gpu_models(proc: Path = PROC) -> list[str]:
    """The model of each NVIDIA GPU, in the order of their slots."""
    files = sorted(proc.glob("driver/nvidia/gpus/*/information"))
    return [model for file in files for model in _values(file, "Model")]


def _memory(proc: Path) -> list[str]:
    return [f"{int(total.split()[0]) / 2**20:.0f} GiB" for total in _values(proc / "meminfo", "MemTotal")]


def _gpus(proc: Path) -> list[str]:
    models = gpu_models(proc)
    return [f"{models.count(model)} x {model}" for model in dict.fromkeys(models)]


def _tpus(dev: Path) -> list[str]:
    """A TPU's chips are `accel0`, … or, on newer machines, numbered groups of vfio."""
    chips = [*dev.glob("accel[0-9]*"), *dev.glob("vfio/[0-9]*")]
    return [f"{len(chips)} TPU chips"] if chips else []


def _values(file: Path, name: str) -> list[str]:
    """The values of a field in a file of `name : value` lines; none where the system has no such file."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return []
    pairs = (line.partition(":") for line in lines)
    return [value.strip() for key, _, value in pairs if key.strip() == name]
