from pathlib import Path

import pytest

from stages.errors import UserError
from stages.sources.resolve import check, open_source, resolve
from stages.store.conditional import CorruptObjectError, open_store

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


@pytest.mark.parametrize("uri", ["gs://bucket/object", "gs://bucket#1", "gs://bucket/object#latest"])
def test_an_object_without_its_generation_is_refused(uri: str) -> None:
    with pytest.raises(UserError, match="expected gs://bucket/object#generation"):
        check(uri)
