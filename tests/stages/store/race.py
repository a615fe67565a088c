"""Races workers for one stage identity, with deaths, stalls and lost answers; prints one JSON line for each round.

Run as a program: `race.py STORE_URI NUM_WORKERS FIRST_SEED NUM_ROUNDS`. Workers are processes, or threads for a store
in memory. A stalled process is really stopped, with its renewals.
"""

import importlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from stages.contract import FileEntry
from stages.errors import LeaseLostError, StorageError
from stages.store.conditional import ConditionalStore, Listed, PreconditionFailed, StoredObject, open_store
from stages.store.holder import this_holder
from stages.store.layout import StagePaths
from stages.store.lease import HeldBy, Lease, LeaseKeeper, LeaseTiming, Observation, acquire
from stages.store.manifest import Committed, Manifest, check_files, claim_manifest, commit_manifest, read_manifest
from stages.store.outputs import upload_output
from stages.store.provenance import Provenance

TIMING = LeaseTiming(ttl=0.6, beat=0.1, request=0.1)
STALL_SECONDS = 0.9
ROUND_SECONDS = 60
DIE, STALL, LOSE = 0.06, 0.10, 0.35
PROVENANCE = Provenance(argv=(), git_revision=None, packages={}, host="", python="", system="")


class Died(BaseException):
    """A thread's death: nothing may catch it."""


@dataclass
class FaultyStore:
    """Passes everything on, and acts up around the write of the manifest."""

    inner: ConditionalStore
    random: random.Random
    threaded: bool
    events: list[str]
    blocked_until: float = 0.0
    dead: bool = False
    uri: str = field(init=False)

    def __post_init__(self) -> None:
        self.uri = self.inner.uri

    def fault(self, point: str, chance: float | None = None) -> None:
        """Now and then the worker dies here, or stops for longer than the TTL; `chance` decides if it is given."""
        chance = self.random.random() if chance is None else chance
        if chance < DIE:
            self.note("died")
            if not self.threaded:
                os.kill(os.getpid(), signal.SIGKILL)
            self.dead = True
            raise Died(point)
        if chance < DIE + STALL:
            self.note("stalled")
            if self.threaded:
                self.blocked_until = time.monotonic() + STALL_SECONDS
                self.wait()
            else:
                subprocess.Popen(["sh", "-c", f"sleep {STALL_SECONDS}; kill -CONT {os.getpid()}"])
                os.kill(os.getpid(), signal.SIGSTOP)

    def note(self, event: str) -> None:
        self.events.append(event)
        if not self.threaded:
            os.write(1, f"{event}\n".encode())

    def wait(self) -> None:
        time.sleep(max(0.0, self.blocked_until - time.monotonic()))
        if self.dead:
            raise StorageError("the process of this thread is dead")

    def write(self, path: str, data: bytes, generation: str | None) -> str:
        self.wait()
        commit = path.endswith("/manifest.json")
        if commit:
            # The worst moment: more often than elsewhere.
            self.fault("committing", self.random.random() / 2)
        new = self.inner.create(path, data) if generation is None else self.inner.swap(path, data, generation)
        if commit:
            self.note("wrote")
            self.fault("written")
        if self.random.random() < LOSE:
            self.note("lost")
            # A client that asks again by itself gets a refusal; one that gives up gets an error.
            raise self.random.choice([PreconditionFailed, StorageError])("the answer was lost")
        return new

    def create(self, path: str, data: bytes) -> str:
        return self.write(path, data, None)

    def swap(self, path: str, data: bytes, generation: str) -> str:
        return self.write(path, data, generation)

    def get(self, path: str) -> StoredObject | None:
        self.wait()
        return self.inner.get(path)

    def list(self, prefix: str) -> list[Listed]:
        self.wait()
        return self.inner.list(prefix)

    def upload(self, path: str, source: Path) -> FileEntry:
        self.wait()
        return self.inner.upload(path, source)

    def fetch(self, path: str, entry: FileEntry, target: Path) -> Path:
        self.wait()
        return self.inner.fetch(path, entry, target)

    def checksum(self, path: str) -> str | None:
        self.wait()
        return self.inner.checksum(path)

    def delete(self, path: str) -> None:
        self.wait()
        self.inner.delete(path)

    def location(self, path: str) -> str:
        return self.inner.location(path)


def compete(store: FaultyStore, paths: StagePaths, number: int) -> None:
    """One worker: waits, works or reuses until the stage is committed."""
    # Half of the workers cannot see each other's processes and have to observe.
    holder = this_holder()
    if store.threaded or number % 2:
        holder = holder.model_copy(update={"host": f"host-{number}"})
    observation = Observation()
    own = False
    while (manifest := claim_manifest(store, paths)) is None:
        try:
            got = acquire(store, paths, holder, observation, TIMING)
            if isinstance(got, HeldBy):
                time.sleep(0.02 + 0.05 * store.random.random())
                continue
            own = attempt(store, paths, got)
        except LeaseLostError:
            store.note("fenced")
        except StorageError:
            # What a retry of the stage does.
            store.note("failed")
    store.note("finished" if own else "reused")
    store.note(f"result:{manifest.attempt}")


def attempt(store: FaultyStore, paths: StagePaths, lease: Lease) -> bool:
    """What a supervisor does with a lease; returns whether the result is its own."""
    committed = False
    lost = threading.Event()
    keeper = LeaseKeeper(lease, lambda _: lost.set(), TIMING)
    try:
        if claim_manifest(store, paths) is None:
            if lease.epoch == 1:
                # Every round has at least one of the two.
                store.fault("acquired", store.random.choice([0.0, DIE]))
            work(store, lost)
            manifest = make_manifest(store, paths, lease.attempt, lease.epoch)
            result = commit_manifest(store, paths, manifest, lease)
            committed = isinstance(result, Committed)
            store.note("committed" if committed else "superseded")
    finally:
        keeper.stop()
    lease.release()
    return committed


def work(store: FaultyStore, lost: threading.Event) -> None:
    """A little computing; a careful worker stops when told that the lease is lost, a zombie does not."""
    zombie = store.random.random() < 0.3
    for _ in range(store.random.randint(1, 4)):
        time.sleep(0.03)
        store.fault("working")
        if lost.is_set() and not zombie:
            raise LeaseLostError("told so")


def make_manifest(store: FaultyStore, paths: StagePaths, attempt: str, epoch: int) -> Manifest:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "weights").write_text(attempt)
        files = upload_output(store, paths.attempt(attempt).out("checkpoint"), Path(folder))
    store.fault("uploaded")
    return Manifest(
        stage=paths.kind,
        key=paths.key,
        version=1,
        attempt=attempt,
        epoch=epoch,
        outputs={"checkpoint": files},
        numbers={},
        inputs={},
        created="",
        seconds=0.0,
        provenance=PROVENANCE,
    )


def run_threads(uri: str, paths: StagePaths, workers: int, seed: int) -> tuple[list[list[str]], int]:
    """Events of each worker, and how many still ran at the deadline."""
    stores = [FaultyStore(open_store(uri), random.Random(seed + n), True, []) for n in range(workers)]

    def live(number: int) -> None:
        try:
            compete(stores[number], paths, number)
        except Died:
            return

    threads = [threading.Thread(target=live, args=(n,), daemon=True) for n in range(workers)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + ROUND_SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [store.events for store in stores], sum(thread.is_alive() for thread in threads)


def run_processes(uri: str, paths: StagePaths, workers: int, seed: int) -> tuple[list[list[str]], int]:
    """Events of each worker, and how many still ran at the deadline."""
    pipes = {start_process(uri, paths, number, seed): number for number in range(workers)}
    running = {pid for pid, _ in pipes}
    deadline = time.monotonic() + ROUND_SECONDS
    while running and time.monotonic() < deadline:
        time.sleep(0.02)
        running -= {pid for pid in running if os.waitpid(pid, os.WNOHANG)[0]}
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return [os.fdopen(pipe).read().split() for _, pipe in pipes], len(running)


def start_process(uri: str, paths: StagePaths, number: int, seed: int) -> tuple[int, int]:
    """Forks a worker: number of the process, and the pipe with its events."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    os.dup2(writing, 1)
    os.close(writing)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    compete(FaultyStore(open_store(uri), random.Random(seed + number), False, []), paths, number)
    os._exit(0)


def race(uri: str, workers: int, seed: int) -> dict[str, object]:
    """One round, and what it left in the store."""
    paths = StagePaths("sft", f"{seed:064x}")
    run = run_threads if uri.startswith("memory://") else run_processes
    events, hung = run(uri, paths, workers, seed)
    store = open_store(uri)
    manifest = read_manifest(store, paths)
    return {
        "seed": seed,
        "hung": hung,
        "counts": Counter(event for worker in events for event in worker),
        "manifest": manifest is not None,
        "problems": [] if manifest is None else check_files(store, manifest),
    }


def main() -> None:
    uri, workers, seed, rounds = sys.argv[1], *map(int, sys.argv[2:])
    if uri.startswith("gs://"):
        # Loaded once, before the workers are forked.
        importlib.import_module("google.cloud.storage")
    for number in range(rounds):
        print(json.dumps(race(uri, workers, seed + 1000 * number)), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
