"""Generated problems: `reasoning_gym://task?parameter=value`, identified by package version, task and parameters."""

import hashlib
import importlib.metadata
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from urllib.parse import parse_qsl

from pydantic import JsonValue

from stages.contract import SourceRef
from stages.errors import UserError

FORM = re.compile(r"reasoning_gym://(?P<task>[a-z0-9_]+)(\?(?P<params>[^#]+))?", flags=re.ASCII)
RESERVED = ("seed", "size")


@dataclass(frozen=True)
class Task:
    """A task of reasoning-gym and its typed parameters."""

    name: str
    params: Mapping[str, JsonValue]


def _refuse_constant(text: str) -> NoReturn:
    raise UserError(f"{text} is no parameter of a task")


def _finite(text: str) -> float:
    return float(text) if math.isfinite(float(text)) else _refuse_constant(text)


def _typed(text: str) -> JsonValue:
    """A value as JSON when it reads as such, else as text."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except json.JSONDecodeError:
        return text


def parse(uri: str) -> Task:
    """The task and its parameters.

    Raises:
        UserError: the form is wrong, or a parameter stands twice or belongs to the stage.
    """
    match = FORM.fullmatch(uri)
    if match is None:
        raise UserError(f"source '{uri}': expected reasoning_gym://task?parameter=value&parameter=value")
    try:
        pairs = parse_qsl(match["params"] or "", keep_blank_values=True, strict_parsing=match["params"] is not None)
    except ValueError as error:
        raise UserError(f"source '{uri}': expected parameter=value joined by '&': {error}") from error
    params: dict[str, JsonValue] = {}
    for name, text in pairs:
        if name in RESERVED:
            raise UserError(f"source '{uri}': '{name}' is a setting of the stage, not of the task")
        if name in params:
            raise UserError(f"source '{uri}': the parameter '{name}' stands twice")
        params[name] = _typed(text)
    return Task(match["task"], params)


SCHEME = "reasoning_gym://"


def open_task(source: SourceRef) -> Task:
    """The task of a source.

    Raises:
        UserError: the installed version generates other problems than those that the source's digest stands for.
    """
    if GeneratedProblems().digest(source.uri) != source.digest:
        version = importlib.metadata.version("reasoning-gym")
        raise UserError(
            f"source {source.uri}: reasoning-gym {version} here is not the version that the pipeline was planned with; "
            "install the same one"
        )
    return parse(source.uri)


class GeneratedProblems:
    """Resolves `reasoning_gym://`."""

    def check(self, uri: str) -> None:
        """Raises `UserError` when the form is wrong."""
        parse(uri)

    def digest(self, uri: str) -> str:
        """Of the installed version, the task and its parameters in the order of their names."""
        task = parse(uri)
        identity = [importlib.metadata.version("reasoning-gym"), task.name, dict(task.params)]
        text = json.dumps(identity, sort_keys=True, allow_nan=False, separators=(",", ":"))
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"

    def open(self, source: SourceRef, cache: Path) -> Path:
        """Raises `UserError`: there is no file."""
        raise UserError(f"source {source.uri}: problems are generated, there is no file; only `prepare` takes it")
