"""The compose file: what it names is there, what must agree agrees, Prefect knows its settings."""

import re
from pathlib import Path

import jsonschema
import pytest
from compose_file import FOLDER, Compose, Service, example, read_compose
from prefect.settings import Settings

from flows.scheduler.up import SERVER
from pipelines.spec.durations import parse_duration

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "infra" / "locks" / "server.txt"

TEXTS = {"type": "array", "items": {"type": "string"}}
CONDITION = {"enum": ["service_started", "service_healthy", "service_completed_successfully"]}
# The parts of the compose specification that the file uses, and no others.
SERVICE = {
    "type": "object",
    "required": ["image", "command", "restart"],
    "additionalProperties": False,
    "properties": {
        "build": {
            "type": "object",
            "additionalProperties": False,
            "required": ["context", "dockerfile"],
            "properties": {"context": {"type": "string"}, "dockerfile": {"type": "string"}},
        },
        "image": {"type": "string"},
        "restart": {"enum": ["no", "always", "on-failure", "unless-stopped"]},
        "command": TEXTS,
        "environment": {"type": "object", "additionalProperties": {"type": "string"}},
        "depends_on": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"condition": CONDITION},
            },
        },
        "healthcheck": {
            "type": "object",
            "additionalProperties": False,
            "required": ["test"],
            "properties": {
                "test": TEXTS,
                "interval": {"type": "string"},
                "timeout": {"type": "string"},
                "retries": {"type": "integer"},
            },
        },
        "volumes": TEXTS,
        "ports": TEXTS,
        "profiles": TEXTS,
        "working_dir": {"type": "string"},
        "stop_grace_period": {"type": "string"},
        "deploy": {"type": "object"},
    },
}


@pytest.fixture
def compose() -> Compose:
    return read_compose(example())


def settings_of(service: Service) -> dict[str, str]:
    return {name: value for name, value in service.get("environment", {}).items() if name.startswith("PREFECT_")}


def test_every_service_has_the_shape_that_the_specification_asks_for(compose: Compose) -> None:
    for service in compose["services"].values():
        jsonschema.validate(service, SERVICE)


def test_services_wait_only_for_services_that_can_be_healthy(compose: Compose) -> None:
    for service in compose["services"].values():
        for name in service.get("depends_on", {}):
            assert "healthcheck" in compose["services"][name], name


def test_volumes_and_dockerfiles_that_are_named_are_there(compose: Compose) -> None:
    for service in compose["services"].values():
        named = [volume.split(":")[0] for volume in service.get("volumes", [])]
        assert [name for name in named if "/" not in name and name not in compose["volumes"]] == []
        build = service.get("build")
        if build is not None:
            assert (FOLDER / build["context"]).resolve() == ROOT
            assert (ROOT / build["dockerfile"]).is_file()


@pytest.mark.parametrize("name", ["worker", "worker-cuda"])
def test_volumes_of_workers_lie_where_their_image_lets_its_user_write(name: str, compose: Compose) -> None:
    service = compose["services"][name]
    build = service.get("build")
    assert build is not None
    [owned] = re.findall(r"install --directory --owner temper (.+)", (ROOT / build["dockerfile"]).read_text())
    written = [volume.split(":")[1] for volume in service.get("volumes", []) if not volume.endswith(":ro")]
    assert len(written) == 2
    assert [path for path in written if path not in owned.split()] == []


@pytest.mark.parametrize("name", ["POSTGRES_PASSWORD", "TEMPER_AUTH"])
def test_it_does_not_start_without_its_secrets(name: str) -> None:
    values = {key: value for key, value in example().items() if key != name}
    with pytest.raises(KeyError, match=name):
        read_compose(values)


def test_nothing_is_published_beyond_this_machine(compose: Compose) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


@pytest.mark.parametrize("name", ["server", "services", "worker", "worker-cuda"])
def test_prefect_knows_every_setting_and_takes_its_value(
    name: str, compose: Compose, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = settings_of(compose["services"][name])
    known = known_settings()
    # Those of the integration with Redis are read by it.
    assert [key for key in given if key not in known and not key.startswith("PREFECT_REDIS_")] == []
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    for key, value in given.items():
        monkeypatch.setenv(key, value)
    settings = Settings()
    if name in ("server", "services"):
        assert settings.server.services.db_vacuum.enabled_vacuum_types == {"events", "flow_runs", "orphans"}
        assert settings.server.services.db_vacuum.retention_period.days == 90
        assert settings.server.events.retention_period.days == 7


def known_settings() -> set[str]:
    """Names in the environment of all settings, the accepted old ones among them."""
    text = str(Settings.model_json_schema())
    return set(re.findall(r"PREFECT_\w+", text))


def test_both_halves_of_the_server_share_all_that_matters(compose: Compose) -> None:
    server, services = (settings_of(compose["services"][name]) for name in ("server", "services"))
    of_the_api = {"PREFECT_SERVER_API_HOST", "PREFECT_SERVER_API_PORT", "PREFECT_UI_API_URL"}
    assert {key: value for key, value in server.items() if key not in of_the_api} == services


def test_a_slot_is_looked_for_about_as_often_as_under_temper_up(compose: Compose) -> None:
    services = settings_of(compose["services"]["services"])
    assert all(float(services[name]) <= 5 for name in SERVER)


def test_workers_give_what_the_server_asks_for_and_have_time_to_save(compose: Compose) -> None:
    asked = compose["services"]["server"].get("environment", {})["PREFECT_SERVER_API_AUTH_STRING"]
    for name in ("worker", "worker-cuda"):
        worker = compose["services"][name]
        assert worker.get("environment", {})["PREFECT_API_AUTH_STRING"] == asked
        assert parse_duration(worker.get("stop_grace_period", "10s")) >= 240


def test_the_server_has_the_version_of_its_clients(compose: Compose) -> None:
    versions = [re.findall(r"^prefect==(\S+)", lock.read_text(), re.MULTILINE) for lock in (LOCK, *clients())]
    assert versions == [versions[0]] * len(versions)
    assert len(versions[0]) == 1


def clients() -> list[Path]:
    return [LOCK.with_name(f"{kind}.txt") for kind in ("cpu", "cuda", "tpu")]
