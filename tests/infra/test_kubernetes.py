"""The template of the Kubernetes work pool, filled in as Prefect's workers do it."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from prefect.workers.base import BaseJobConfiguration

from flows.scheduler.pool import COMMAND

FILE = Path(__file__).parents[2] / "infra" / "kubernetes" / "base-job-template.json"

TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
LIST = {"type": "array", "items": {"type": "object"}}


def closed(required: list[str], **properties: object) -> dict[str, object]:
    return {"type": "object", "required": required, "additionalProperties": False, "properties": properties}


# The parts of batch/v1 that the template uses, as Kubernetes describes them.
CONTAINER = closed(
    ["name", "image"],
    name={"type": "string"},
    image={"type": "string"},
    imagePullPolicy={"enum": ["Always", "IfNotPresent", "Never"]},
    command={"type": "array", "items": {"type": "string"}},
    # The worker makes lists of these two.
    args={"type": "string"},
    env=TEXTS,
    resources=closed([], limits=TEXTS, requests=TEXTS),
    volumeMounts=LIST,
)
POD = closed(
    ["containers", "restartPolicy"],
    restartPolicy={"const": "Never"},
    terminationGracePeriodSeconds={"type": "integer", "minimum": 0},
    serviceAccountName={"type": "string"},
    nodeSelector=TEXTS,
    tolerations=LIST,
    containers={"type": "array", "items": CONTAINER, "minItems": 1},
    volumes=LIST,
)
JOB = closed(
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "batch/v1"},
    kind={"const": "Job"},
    metadata=closed([], generateName={"type": "string"}, namespace={"type": "string"}, labels=TEXTS, annotations=TEXTS),
    spec=closed(
        ["template"],
        backoffLimit={"const": 0},
        parallelism={"const": 1},
        completions={"const": 1},
        ttlSecondsAfterFinished={"type": "integer", "minimum": 0},
        template=closed(["spec"], spec=POD),
    ),
)


class Configuration(BaseJobConfiguration):
    """What a worker makes of the template, as far as it is not any worker's."""

    namespace: str
    job_manifest: dict[str, Any]


@pytest.fixture
def template() -> dict[str, Any]:
    return json.loads(FILE.read_text())


def job(template: dict[str, Any], **values: object) -> dict[str, Any]:
    """The job for a deployment with these variables."""
    jsonschema.validate(values, template["variables"])
    client: Any = object()
    made = Configuration.from_template_and_values(template, values, client=client)
    return asyncio.run(made).job_manifest


def test_every_placeholder_is_a_variable_and_every_variable_is_used(template: dict[str, Any]) -> None:
    used = set(re.findall(r"{{ (\w+) }}", json.dumps(template["job_configuration"])))
    assert used == set(template["variables"]["properties"])


def test_the_variables_are_a_schema_and_their_defaults_follow_it(template: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(template["variables"])
    for schema in template["variables"]["properties"].values():
        if "default" in schema:
            jsonschema.validate(schema["default"], schema)


def test_a_job_with_an_image_alone_is_whole_and_is_never_started_twice(template: dict[str, Any]) -> None:
    made = job(template, image="registry.example.org/temper-cpu:1")
    jsonschema.validate(made, JOB)
    assert made["spec"]["backoffLimit"] == 0
    pod = made["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] >= 240
    assert pod["containers"][0]["args"] == COMMAND
    assert pod["containers"][0]["env"]["PREFECT_FLOW_RUN_EXECUTE_SIGTERM_BEHAVIOR"] == "reschedule"


def test_a_deployment_may_ask_for_accelerators_and_more_time(template: dict[str, Any]) -> None:
    made = job(
        template,
        image="registry.example.org/temper-tpu:1",
        limits={"google.com/tpu": "4"},
        node_selector={"cloud.google.com/gke-tpu-topology": "2x2"},
        termination_grace_seconds=600,
        service_account_name="temper",
        env={"PREFECT_LOGGING_LEVEL": "DEBUG"},
    )
    jsonschema.validate(made, JOB)
    pod = made["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"google.com/tpu": "4"}
    assert (pod["terminationGracePeriodSeconds"], pod["serviceAccountName"]) == (600, "temper")
    assert pod["containers"][0]["env"]["PREFECT_LOGGING_LEVEL"] == "DEBUG"


@pytest.mark.parametrize("values", [{}, {"image": 3}, {"image": "x", "limits": {"cpu": 4}}])
def test_variables_that_are_missing_or_wrong_are_refused(template: dict[str, Any], values: dict[str, object]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        job(template, **values)
