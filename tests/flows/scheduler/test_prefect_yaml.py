"""`infra/prefect.yaml`, as Prefect's own command reads it and as a server has it afterwards."""

import os
import subprocess
import sys
from pathlib import Path

import yaml
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import ConcurrencyLimitStrategy
from prefect.client.schemas.schedules import CronSchedule

from flows.scheduler.deployment import ENTRYPOINT
from pipelines.spec.load import load_pipeline

ROOT = Path(__file__).parents[3]
FILE = ROOT / "infra" / "prefect.yaml"


def test_prefect_deploys_what_the_file_says(up_client: SyncPrefectClient) -> None:
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--prefect-file", str(FILE), "--all"]
    ended = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    deployment = up_client.read_deployment_by_name("temper/smoke")
    up_client.pause_deployment(deployment.id)
    assert (deployment.entrypoint, deployment.work_pool_name) == (ENTRYPOINT, "temper")
    assert deployment.concurrency_options is not None
    assert deployment.concurrency_options.collision_strategy is ConcurrencyLimitStrategy.CANCEL_NEW
    [schedule] = deployment.schedules
    assert isinstance(schedule.schedule, CronSchedule)
    assert (schedule.schedule.cron, schedule.schedule.timezone) == ("0 2 * * *", "Europe/Berlin")


def test_the_pipeline_that_it_names_is_one_of_the_repository_and_its_prefect_is_the_locked_one() -> None:
    written = yaml.safe_load(FILE.read_text())
    [deployment] = written["deployments"]
    [pull] = written["pull"]
    [step] = pull.values()
    path = Path(deployment["parameters"]["pipeline"]).relative_to(step["directory"])
    assert load_pipeline(ROOT / path).name == deployment["name"]
    assert f"prefect=={written['prefect-version']} " in (ROOT / "infra" / "locks" / "cpu.txt").read_text()
