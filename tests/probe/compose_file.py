"""The compose file as `docker compose` would read it: variables filled in, extensions merged."""

import re
from pathlib import Path
from typing import NotRequired, TypedDict, cast

import yaml

FOLDER = Path(__file__).parents[2] / "infra" / "compose"
VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*)|:\?([^}]*))?\}")


class Service(TypedDict):
    image: str
    command: list[str]
    build: NotRequired[dict[str, str]]
    environment: NotRequired[dict[str, str]]
    depends_on: NotRequired[dict[str, dict[str, str]]]
    volumes: NotRequired[list[str]]
    ports: NotRequired[list[str]]
    healthcheck: NotRequired[dict[str, object]]
    stop_grace_period: NotRequired[str]


class Compose(TypedDict):
    services: dict[str, Service]
    volumes: dict[str, object]


def example() -> dict[str, str]:
    """The values of `example.env`."""
    lines = (FOLDER / "example.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def read_compose(values: dict[str, str]) -> Compose:
    """The file with these variables; one that must be given and is not raises `KeyError`."""

    def fill(found: re.Match[str]) -> str:
        name, fallback, _ = found.groups()
        return values[name] if fallback is None else values.get(name, fallback)

    return cast("Compose", yaml.safe_load(VARIABLE.sub(fill, (FOLDER / "compose.yaml").read_text())))
