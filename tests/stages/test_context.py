"""What a running stage gets from its store."""

import threading
from pathlib import Path

from stages.context import RunContext
from stages.contract import StageRequest, StoredInput
from stages.store.layout import StagePaths, attempt_name
from stages.store.memory import MemoryStore
from stages.store.outputs import upload_output

PRODUCER = StagePaths("sft", "cd" * 32)


def test_an_input_that_was_made_again_comes_without_the_files_of_the_earlier_one(tmp_path: Path) -> None:
    store = MemoryStore("memory://made-again")
    assert input_files(store, tmp_path, 1, "shard-1", "shard-2") == ["shard-1", "shard-2"]
    assert input_files(store, tmp_path, 2, "shard-1") == ["shard-1"]


def input_files(store: MemoryStore, tmp_path: Path, epoch: int, *names: str) -> list[str]:
    """The names that a consumer sees of what this attempt of the producer made."""
    made = tmp_path / f"made{epoch}"
    made.mkdir()
    for name in names:
        (made / name).write_text(f"{name} of epoch {epoch}")
    folder = PRODUCER.attempt(attempt_name(epoch, "aa")).out("checkpoint")
    files = upload_output(store, folder, made)
    stored = StoredInput(stage=PRODUCER.kind, key=PRODUCER.key, output="checkpoint", folder=folder, files=files)
    request = StageRequest(
        stage_id="dpo",
        kind="sft",
        version=1,
        key="ab" * 32,
        config="{}",
        inputs={"model": stored},
        store=store.uri,
        attempt="000001-bb",
        epoch=1,
        resume=(),
        scratch=str(tmp_path / "scratch"),
        cache=str(tmp_path / "cache"),
    )
    return sorted(path.name for path in RunContext(request, store, threading.Event()).input_dir("model").iterdir())
