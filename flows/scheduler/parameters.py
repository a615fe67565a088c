"""Parameters of a run as the overrides that the loader of pipelines takes."""

import json
from collections.abc import Mapping

from pipelines.spec.nodes import ParamValue


def as_overrides(params: Mapping[str, ParamValue]) -> list[str]:
    """`params.NAME=VALUE` for each; JSON is YAML."""
    return [f"params.{name}={json.dumps(value)}" for name, value in params.items()]
