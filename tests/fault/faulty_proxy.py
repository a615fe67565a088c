"""A proxy in front of a storage service that fails at random, in both directions.

Run as a program: `faulty_proxy.py UPSTREAM_PORT SEED RATE`. It prints its port and ends with its standard input. Of the
requests a share of RATE meets one fault each:

    refused    answered with 429, 500 or 503; the service never sees it
    torn       half of the request's body reaches the service, then the connection breaks
    lost       the service acts, and its answer is a 503
    dropped    the service acts, and the connection closes without an answer
    cut        the service acts, and half of its answer's body arrives
    slow       all is well, but late
"""

import http.client
import os
import random
import socket
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAULTS = ("refused", "torn", "lost", "dropped", "cut", "slow")
STATUSES = (429, 500, 503)
SLOW_SECONDS = 1.0
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "upgrade", "content-length", "host"}


Answer = tuple[int, dict[str, str], bytes]
"""Status, headers, body."""


class FaultyProxy(ThreadingHTTPServer):
    """Draws the faults from one generator, so that a seed gives a like mixture in each run."""

    daemon_threads = True

    def __init__(self, upstream: int, seed: int, rate: float) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.upstream = upstream
        self.rate = rate
        self.counts: Counter[str] = Counter()
        self.uploads: dict[str, Answer] = {}
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is no news here."""

    def draw(self) -> tuple[str, float]:
        """A fault or none, and a number for its details."""
        with self._lock:
            fault = self._random.choice(FAULTS) if self._random.random() < self.rate else "none"
            self.counts[fault] += 1
            return fault, self._random.random()


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    @property
    def proxy(self) -> FaultyProxy:
        """What it belongs to."""
        assert isinstance(self.server, FaultyProxy)
        return self.server

    def handle_one(self) -> None:
        """One request."""
        fault, detail = self.proxy.draw()
        body = self._read_body()
        if fault == "refused":
            self._answer(STATUSES[int(detail * len(STATUSES))], {}, b"try later")
            return
        if fault == "torn" and body:
            self._tear(body)
            return
        if fault == "slow":
            time.sleep(detail * SLOW_SECONDS)
        status, headers, answer = self._forward(body)
        if fault == "lost":
            self._answer(503, {}, b"try later")
        elif fault == "dropped":
            self.close_connection = True
        elif fault == "cut" and answer:
            self._answer(status, headers, answer, cut=True)
        else:
            self._answer(status, headers, answer)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = handle_one  # noqa: N815

    def _read_body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _request_headers(self) -> dict[str, str]:
        kept = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
        return {**kept, "Host": f"127.0.0.1:{self.proxy.upstream}"}

    def _forward(self, body: bytes) -> Answer:
        """What the service answers.

        The emulator forgets an upload once it is whole; the service says again that it is.
        """
        is_upload = "upload_id=" in self.path
        if is_upload and self.path in self.proxy.uploads:
            return self.proxy.uploads[self.path]
        answer = self._ask(body)
        if is_upload and answer[0] in (200, 201):
            self.proxy.uploads[self.path] = answer
        return answer

    def _ask(self, body: bytes) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.proxy.upstream, timeout=60)
        try:
            headers = {**self._request_headers(), "Content-Length": str(len(body))}
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
            headers = {name: value for name, value in answer.getheaders() if name.lower() not in HOP_BY_HOP}
            return answer.status, headers, data
        finally:
            connection.close()

    def _tear(self, body: bytes) -> None:
        lines = [f"{self.command} {self.path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in self._request_headers().items()]
        head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode()
        with socket.create_connection(("127.0.0.1", self.proxy.upstream)) as upstream:
            upstream.sendall(head + body[: len(body) // 2])
        self.close_connection = True

    def _answer(self, status: int, headers: dict[str, str], data: bytes, cut: bool = False) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            # What the service says about itself leads past the proxy: an upload would go on there.
            self.send_header(name, value.replace(f":{self.proxy.upstream}", f":{self.proxy.server_port}"))
        length = headers.get("Content-Length", str(len(data))) if self.command == "HEAD" else str(len(data))
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[: len(data) // 2] if cut else data)
        if cut:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Quiet."""


def main() -> None:
    proxy = FaultyProxy(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    print(proxy.server_port, flush=True)  # noqa: T201
    sys.stdin.read()
    print(dict(proxy.counts), flush=True)  # noqa: T201
    os._exit(0)


if __name__ == "__main__":
    main()
