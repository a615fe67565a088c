"""Teacher and student on devices of their own, and together on several."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from stage_trial import TINY, StageTrial, Trained, coin_rows, external, stored_rows

from stages.contract import ClusterRequest
from stages.distillation.config import DistillationConfig, ForwardKlConfig, OnPolicyConfig, TeacherConfig
from stages.engine.cluster.config import MeshConfig
from stages.engine.models.config import LoraConfig, TrainedModelConfig
from stages.engine.models.lora import ADAPTER_FILE
from stages.engine.rollout.config import SamplingConfig
from stages.engine.training.config import AdamWConfig
from stages.errors import UserError

CONFIG = DistillationConfig(
    model=TrainedModelConfig(lora=LoraConfig(rank=4, alpha=8)),
    # Entries whose gradient is nothing but rounding are left alone.
    optimizer=AdamWConfig(learning_rate=1e-2, epsilon=1e-3),
    num_steps=3,
    batch_size=8,
    divergence=ForwardKlConfig(kind="forward_kl"),
    seed=5,
    train_micro_batch=2,
)
DIVIDED = TeacherConfig(num_devices=2, mesh=MeshConfig(data=1, sequence=2))


@pytest.mark.slow
@pytest.mark.usefixtures("quickly_compiled")
def test_wherever_the_teacher_runs_the_student_learns_the_same(trained: Trained) -> None:
    dataset = stored_rows(trained.folder, coin_rows(30, lambda n: str(n % 2)))
    inputs = {"model": external(TINY), "teacher": trained.model, "dataset": dataset}
    alone = StageTrial(trained.folder, "distillation", CONFIG, inputs)
    expected = load_file(alone.run().output_dir("checkpoint") / ADAPTER_FILE)
    cases = {
        "shared": (4, MeshConfig(fsdp=2), TeacherConfig()),
        "two and two": (4, MeshConfig(), DIVIDED),
        "one and two": (3, MeshConfig(), DIVIDED),
        "three and one": (4, MeshConfig(), TeacherConfig(num_devices=1)),
    }
    for name, (num_devices, mesh, teacher) in cases.items():
        config = CONFIG.model_copy(update={"mesh": mesh, "teacher": teacher})
        trial = StageTrial(trained.folder, "distillation", config, inputs)
        assert trial.run_on(num_devices).last_step == CONFIG.num_steps, name
        scratch = trained.folder / "scratch" / trial.paths.key
        found = load_file(next(scratch.glob(f"**/checkpoint/{ADAPTER_FILE}")))
        for weight, value in expected.items():
            np.testing.assert_allclose(found[weight], value, atol=1e-6, rtol=0, err_msg=f"{name}: {weight}")


def test_a_teacher_that_would_take_all_devices_is_refused(trained: Trained) -> None:
    config = CONFIG.model_copy(update={"teacher": TeacherConfig(num_devices=1)})
    dataset = stored_rows(trained.folder, coin_rows(3, str))
    inputs = {"model": external(TINY), "teacher": trained.model, "dataset": dataset}
    with pytest.raises(UserError, match=r"teacher.num_devices: 1 of the 1 devices leave none for the training"):
        StageTrial(trained.folder, "distillation", config, inputs).run()


@pytest.mark.slow
def test_two_processes_draw_read_and_learn_what_one_does(trained: Trained) -> None:
    on_policy = OnPolicyConfig(sampling=SamplingConfig(temperature=1.0, max_response_tokens=3))
    config = CONFIG.model_copy(update={"on_policy": on_policy})
    dataset = stored_rows(trained.folder, coin_rows(9, lambda n: str(n % 2)))
    inputs = {"model": external(TINY), "teacher": trained.model, "dataset": dataset}
    alone = StageTrial(trained.folder, "distillation", config, inputs)
    expected = load_file(alone.run().output_dir("checkpoint") / ADAPTER_FILE)
    together = StageTrial(trained.folder, "distillation", config, inputs).request()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{probe.getsockname()[1]}"
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "1", "JAX_DISABLE_MOST_OPTIMIZATIONS": "true"}
    processes = list[subprocess.Popen[bytes]]()
    for member in range(2):
        scratch = Path(together.scratch) / f"process{member}"
        cluster = ClusterRequest(coordinator=coordinator, num_processes=2, process_id=member)
        scratch.mkdir(parents=True)
        file = scratch / "request.json"
        file.write_text(together.model_copy(update={"cluster": cluster, "scratch": str(scratch)}).model_dump_json())
        command = [sys.executable, "-m", "stages", str(file)]
        processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment))
    assert [process.wait(250) for process in processes] == [0, 0]
    found = load_file(Path(together.scratch) / "process0" / "out" / "checkpoint" / ADAPTER_FILE)
    for weight, value in expected.items():
        np.testing.assert_allclose(found[weight], value, atol=1e-6, rtol=0, err_msg=weight)
