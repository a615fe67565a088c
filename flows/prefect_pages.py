"""Where a Prefect server has its pages, from the address of its API."""

_RUNS = "/runs/flow-run/"


def page_of(address: str) -> str:
    """The server's first page."""
    return address.rstrip("/").removesuffix("/api")


def flow_run_url(address: str, flow_run: str) -> str:
    """The page of a flow run."""
    return f"{page_of(address)}{_RUNS}{flow_run}"


def split_flow_run_url(url: str) -> tuple[str, str]:
    """The address of the API, and the id of the flow run, of such a page."""
    page, _, flow_run = url.partition(_RUNS)
    return f"{page}/api", flow_run
