"""By which Prefect tells the pauses of a run apart."""


def pause_key(gate_key: str) -> str:
    """The same gate asks once, however often the run is started."""
    return f"approve-{gate_key[:16]}"
