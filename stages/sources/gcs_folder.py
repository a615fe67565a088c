"""Folders in Google Cloud Storage: one digest of all that they hold, and a copy of just that."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from stages.contract import SourceRef
from stages.errors import UserError
from stages.store.conditional import object_parts

DOWNLOADS = 8
"""Objects that are fetched at the same time."""


@dataclass(frozen=True, order=True)
class _Member:
    """One object; `path` is relative to the folder, `crc32c` hexadecimal."""

    path: str
    generation: int
    crc32c: str


def folder_digest(uri: str, bucket: str, prefix: str) -> str:
    """Digest of the sorted names, generations and checksums of all objects below `prefix`, as `gs:hex`.

    Raises:
        UserError: there is none.
    """
    return _digest(_members(uri, bucket, prefix))


def open_folder(source: SourceRef, bucket: str, prefix: str, cache: Path) -> Path:
    """A copy of the folder, in a place of its digest; objects that an earlier try has copied are not fetched again.

    Raises:
        UserError: it holds other objects than those that the digest stands for.
        CorruptObjectError: an object is gone or its bytes are other ones.
    """
    from stages.store import gcs

    members = _members(source.uri, bucket, prefix)
    if _digest(members) != source.digest:
        raise UserError(f"source {source.uri}: its objects changed after the plan was made; plan again")
    copy = cache / "sources" / hashlib.sha256(f"{source.uri} {source.digest}".encode()).hexdigest()
    opened = gcs.make_client().bucket(bucket)

    def fetch(member: _Member) -> Path:
        blob = opened.blob(prefix + member.path, generation=member.generation)
        return gcs.download(blob, source.uri + member.path, member.crc32c, copy / member.path, gcs.TRANSIENT)

    with ThreadPoolExecutor(DOWNLOADS) as pool:
        list(pool.map(fetch, members))
    return copy


def _members(uri: str, bucket: str, prefix: str) -> list[_Member]:
    from stages.store import gcs

    with gcs.gcs_errors("list", uri):
        blobs = gcs.make_client().list_blobs(
            bucket,
            prefix=prefix,
            fields="items(name,generation,crc32c),nextPageToken",
            timeout=gcs.REQUEST_SECONDS,
            retry=gcs.TRANSIENT,
        )
        found = [_Member(str(blob.name), int(blob.generation or 0), gcs.hexadecimal(blob.crc32c)) for blob in blobs]
    # Consoles stand for an empty folder with an object whose name ends in a slash.
    members = [replace(one, path=one.path.removeprefix(prefix)) for one in found if not one.path.endswith("/")]
    if not members:
        raise UserError(f"source {uri}: there is no object below it")
    for member in members:
        object_parts(member.path)
    return sorted(members)


def _digest(members: list[_Member]) -> str:
    lines = "".join(f"{member.path}\0{member.generation}\0{member.crc32c}\n" for member in members)
    return f"gs:{hashlib.sha256(lines.encode()).hexdigest()}"
