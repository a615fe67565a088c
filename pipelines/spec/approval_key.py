"""The identity of a human gate: what a decision about it is a decision about."""

import hashlib
import json
from collections.abc import Mapping

SCHEME = 1


def approval_key(pipeline: str, gate: str, stages: Mapping[str, str]) -> str:
    """64 hexadecimal digits.

    Args:
        pipeline: its name.
        gate: the gate's id.
        stages: keys of the nearest stages that the gate waits for, by id.
    """
    content = {"scheme": SCHEME, "gate": "human", "pipeline": pipeline, "id": gate, "stages": dict(stages)}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
