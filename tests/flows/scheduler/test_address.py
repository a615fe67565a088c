"""Where a `temper up` tells its address, and how other commands find a server."""

import os
import threading
from pathlib import Path

import pytest

from flows.scheduler.address import AlreadyUpError, Up, UpRecord, find_up
from flows.scheduler.connect import find_server
from flows.server import ServerStartError
from stages.errors import StorageError, UserError

NOBODY = "http://127.0.0.1:1/api"


@pytest.fixture
def up(tmp_path: Path) -> Up:
    return Up(address=NOBODY, process=os.getpid(), folder=str(tmp_path / "up"))


def test_an_address_is_found_while_its_record_is_held(tmp_path: Path, up: Up) -> None:
    assert find_up(tmp_path) is None
    record = UpRecord(tmp_path)
    assert find_up(tmp_path) is None
    record.tell(up)
    assert find_up(tmp_path) == up
    record.release()
    assert find_up(tmp_path) is None


def test_one_that_starts_is_waited_for(tmp_path: Path, up: Up) -> None:
    record = UpRecord(tmp_path)
    teller = threading.Timer(0.3, record.tell, [up])
    teller.start()
    assert find_up(tmp_path, wait_seconds=10) == up
    teller.join()
    record.release()


def test_an_address_that_a_killed_process_left_behind_counts_for_nothing(tmp_path: Path, up: Up) -> None:
    record = UpRecord(tmp_path)
    record.tell(up)
    left = (tmp_path / "up.json").read_bytes()
    record.release()
    (tmp_path / "up.json").write_bytes(left)
    assert find_up(tmp_path) is None
    UpRecord(tmp_path).release()
    assert not (tmp_path / "up.json").exists()


def test_a_second_record_of_a_project_is_refused_and_names_the_first(
    tmp_path: Path, up: Up, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.scheduler.address.CLAIM_SECONDS", 0.1)
    record = UpRecord(tmp_path)
    with pytest.raises(AlreadyUpError, match="is starting in this project"):
        UpRecord(tmp_path)
    record.tell(up)
    with pytest.raises(AlreadyUpError, match=rf"http://127\.0\.0\.1:1 \(process {os.getpid()}, data in .*/up\)"):
        UpRecord(tmp_path)
    record.release()


def test_a_state_folder_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"cannot write .*/file/state: Not a directory"):
        UpRecord(tmp_path / "file" / "state")


def test_without_any_server_the_error_says_how_to_start_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with pytest.raises(UserError, match="start one with `temper up` in another terminal"):
        find_server(tmp_path)


def test_a_server_that_does_not_answer_is_named_with_what_named_it(
    tmp_path: Path, up: Up, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = UpRecord(tmp_path)
    record.tell(up)
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with pytest.raises(ServerStartError, match=rf"{NOBODY}, which the `temper up` with process {os.getpid()} names"):
        find_server(tmp_path)
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:2/api")
    with pytest.raises(ServerStartError, match=r"127\.0\.0\.1:2/api, which PREFECT_API_URL names"):
        find_server(tmp_path)
    record.release()
