"""A small Hugging Face Hub on this machine, and its cache laid out by hand."""

import hashlib
import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

LARGE = (".safetensors", "tokenizer.json")
"""Ends of the names of files that repositories keep outside git."""


def is_large(name: str) -> bool:
    return name.endswith(LARGE)


def etag(name: str, content: bytes) -> str:
    """What the Hub names a file's content by."""
    if is_large(name):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


def write_cache(cache: Path, repo: str, commit: str, files: Mapping[str, bytes], ref: str | None = None) -> Path:
    """Lays out what the Hub's tools leave behind; returns the snapshot's folder."""
    folder = cache / f"models--{repo.replace('/', '--')}"
    snapshot = folder / "snapshots" / commit
    for part in (folder / "blobs", folder / "refs", snapshot):
        part.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / "blobs" / etag(name, content)).write_bytes(content)
        (snapshot / name).symlink_to(Path("../../blobs") / etag(name, content))
    if ref is not None:
        (folder / "refs" / ref).write_text(commit)
    return snapshot


@dataclass
class Repository:
    """What the Hub holds of one model or data set: files by commit, commits by branch, and who may read it."""

    commits: dict[str, dict[str, bytes]]
    branches: dict[str, str]
    gated: bool = False
    served: list[str] = field(default_factory=list)
    """Names of the files whose content was sent."""


class _Answers(BaseHTTPRequestHandler):
    repositories: ClassVar[Mapping[str, Repository]]

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        parts = self.path.partition("?")[0].strip("/").split("/")
        is_api = parts[:1] == ["api"]
        org, name, verb, *rest = parts[2:] if is_api else parts[parts[:1] == ["datasets"] :]
        repository = self.repositories.get(f"{org}/{name}")
        if repository is None:
            return self._refuse(404, "RepoNotFound")
        if repository.gated and not (is_api and verb == "revision"):
            return self._refuse(403, "GatedRepo")
        commit = repository.branches.get(rest[0], rest[0])
        files = repository.commits.get(commit)
        if files is None:
            return self._refuse(404, "RevisionNotFound")
        if verb == "revision":
            siblings = [{"rfilename": file} for file in files]
            gated = "manual" if repository.gated else False
            return self._json({"id": f"{org}/{name}", "sha": commit, "siblings": siblings, "gated": gated})
        if verb == "tree":
            return self._json([_entry(file, content) for file, content in files.items()])
        file = "/".join(rest[1:])
        return self._file(repository, file, commit, files[file], body)

    def _file(self, repository: Repository, name: str, commit: str, content: bytes, body: bool) -> None:
        headers = {"ETag": f'"{etag(name, content)}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if body:
            repository.served.append(name)
        self._send(200, content, headers, body)

    def _json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _refuse(self, status: int, code: str) -> None:
        self._send(status, b"", {"X-Error-Code": code})

    def _send(self, status: int, content: bytes, headers: Mapping[str, str], body: bool = True) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(content)


def _entry(name: str, content: bytes) -> dict[str, object]:
    digest = etag(name, content)
    entry: dict[str, object] = {"type": "file", "path": name, "size": len(content), "oid": digest}
    if is_large(name):
        entry["lfs"] = {"oid": digest, "size": len(content), "pointerSize": 130}
    return entry


@contextmanager
def serving(repositories: Mapping[str, Repository]) -> Generator[str]:
    """A Hub that holds these models and data sets; its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("_Answers", (_Answers,), {"repositories": repositories}))
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
