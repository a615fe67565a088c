"""The process of a Prefect server that lives as long as the run that started it: `python -m flows.server_process PORT`.

It prints its port as the first line of its output as soon as the port is its own, then serves.
"""

import os
import socket
import sys

from stages.lifeline import hold


def main() -> None:
    """Serve on a loopback port until the life line ends, on the port of the first argument or a free one if it is 0."""
    hold()
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
    port = listener.getsockname()[1]
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    # Everything further goes to the log, and the pipe that told the port is closed.
    os.dup2(2, 1)
    address = f"http://127.0.0.1:{port}/api"
    os.environ.update({"PREFECT_API_URL": address, "PREFECT_UI_API_URL": address, "PREFECT_SERVER_API_PORT": str(port)})

    import uvicorn
    from prefect.server.api.server import create_app

    config = uvicorn.Config(create_app(final=True), log_level="warning", timeout_keep_alive=30)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
