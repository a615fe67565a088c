"""By which Prefect tells the pauses of a run apart."""

import hashlib
import json
from collections.abc import Mapping


def pause_key(gate_key: str, manifests: Mapping[str, str]) -> str:
    """The same gate asks once about the same results, however often the run is started.

    Args:
        gate_key: of the gate.
        manifests: digests of the results that it asks about, by stage: a form that was filled in about results which
            were made again since answers nothing.
    """
    about = hashlib.sha256(json.dumps(dict(manifests), sort_keys=True).encode()).hexdigest()
    return f"approve-{gate_key[:16]}-{about[:8]}"
