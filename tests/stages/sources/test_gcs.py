from pathlib import Path

import pytest
from storage_fixtures import FaultyStorage

from stages.errors import UserError
from stages.sources.resolve import check, open_source, resolve
from stages.store.conditional import CorruptObjectError, open_store
from stages.store.gcs import make_client

HERE = Path()


def test_an_object_of_a_generation_is_copied_once_and_checked(gcs_store_uri: str, tmp_path: Path) -> None:
    store = open_store(gcs_store_uri)
    generation = store.create("data/rows.jsonl", b"123456789")
    source = resolve(f"{gcs_store_uri}/data/rows.jsonl#{generation}", HERE)
    assert source.digest == f"gs:{generation}-e3069283"
    copy = open_source(source, tmp_path)
    assert (copy.name, copy.read_bytes()) == ("rows.jsonl", b"123456789")
    store.delete("data/rows.jsonl")
    assert open_source(source, tmp_path) == copy


def test_a_generation_that_is_gone_is_refused(gcs_store_uri: str, tmp_path: Path) -> None:
    store = open_store(gcs_store_uri)
    generation = store.create("rows", b"1")
    source = resolve(f"{gcs_store_uri}/rows#{generation}", HERE)
    store.delete("rows")
    with pytest.raises(CorruptObjectError, match="missing"):
        open_source(source, tmp_path)
    with pytest.raises(UserError, match="no such object of this generation"):
        resolve(f"{gcs_store_uri}/rows#1", HERE)


def test_a_folder_is_copied_with_the_folders_in_it(gcs_store_uri: str, tmp_path: Path) -> None:
    store = open_store(gcs_store_uri)
    for name, content in (("model/config.json", b"{}"), ("model/deep/er/weights", b"1"), ("model-2/config.json", b"2")):
        store.create(name, content)
    # What a console makes of an empty folder.
    bucket, _, prefix = gcs_store_uri.removeprefix("gs://").partition("/")
    make_client().bucket(bucket).blob(f"{prefix}/model/empty/").upload_from_string(b"")
    source = resolve(f"{gcs_store_uri}/model/", HERE)
    copy = open_source(source, tmp_path)
    found = {path.relative_to(copy).as_posix(): path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    assert found == {"config.json": b"{}", "deep/er/weights": b"1"}


def test_a_folders_digest_changes_with_a_name_a_byte_and_a_generation(gcs_store_uri: str) -> None:
    store = open_store(gcs_store_uri)
    first = store.create("model/a", b"1")
    seen = [resolve(f"{gcs_store_uri}/model/", HERE).digest]
    assert resolve(f"{gcs_store_uri}/model/", HERE).digest == seen[0]
    second = store.swap("model/a", b"1", first)
    seen.append(resolve(f"{gcs_store_uri}/model/", HERE).digest)
    store.swap("model/a", b"2", second)
    seen.append(resolve(f"{gcs_store_uri}/model/", HERE).digest)
    store.create("model/b", b"1")
    seen.append(resolve(f"{gcs_store_uri}/model/", HERE).digest)
    assert len(set(seen)) == 4


def test_a_folder_that_changed_since_the_plan_is_refused(gcs_store_uri: str, tmp_path: Path) -> None:
    store = open_store(gcs_store_uri)
    store.create("model/a", b"1")
    source = resolve(f"{gcs_store_uri}/model/", HERE)
    store.create("model/b", b"1")
    with pytest.raises(UserError, match="changed after the plan was made"):
        open_source(source, tmp_path)


def test_what_an_earlier_try_copied_is_kept_and_what_it_spoiled_is_fetched_again(
    gcs_store_uri: str, tmp_path: Path
) -> None:
    store = open_store(gcs_store_uri)
    store.create("model/kept", b"1")
    store.create("model/spoiled", b"1")
    source = resolve(f"{gcs_store_uri}/model/", HERE)
    copy = open_source(source, tmp_path)
    before = (copy / "kept").stat().st_ino
    (copy / "spoiled").write_bytes(b"2")
    assert open_source(source, tmp_path) == copy
    assert ((copy / "kept").stat().st_ino, (copy / "spoiled").read_bytes()) == (before, b"1")


def test_many_objects_come_whole_through_a_service_that_fails(
    gcs_store_uri: str, tmp_path: Path, faulty_storage: FaultyStorage
) -> None:
    store = open_store(gcs_store_uri)
    for number in range(12):
        store.create(f"model/{number}", b"%d" % number * 1000)
    with faulty_storage(3, 0.1):
        copy = open_source(resolve(f"{gcs_store_uri}/model/", HERE), tmp_path)
    assert all((copy / str(number)).read_bytes() == b"%d" % number * 1000 for number in range(12))


def test_an_empty_folder_is_refused(gcs_store_uri: str) -> None:
    with pytest.raises(UserError, match="no object below it"):
        resolve(f"{gcs_store_uri}/nothing/", HERE)


@pytest.mark.parametrize(
    "uri",
    ["gs://bucket/object", "gs://bucket#1", "gs://bucket/object#latest", "gs://bucket/", "gs://bucket/folder/#1a"],
)
def test_an_object_without_its_generation_is_refused(uri: str) -> None:
    with pytest.raises(UserError, match="expected gs://bucket/object#generation or gs://bucket/folder/"):
        check(uri)
