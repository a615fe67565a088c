"""The process of a worker that lives as long as its `temper up`: `python -m flows.scheduler.worker_process POOL`.

It prints one line as soon as it fetches runs.
"""

import asyncio
import os
import socket
import sys

from stages.lifeline import hold


def main() -> None:
    """Fetch runs of a work pool until the life line ends."""
    hold()
    from prefect.workers.process import ProcessWorker

    worker = ProcessWorker(
        work_pool_name=sys.argv[1],
        name=f"temper on {socket.gethostname()}",
        create_pool_if_not_found=False,
    )
    asyncio.run(worker.start(printer=_say_once))


def _say_once(text: str) -> None:
    if "started" in text:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
        # Everything further goes to the log, and the pipe that told it is closed.
        os.dup2(2, 1)


if __name__ == "__main__":
    main()
