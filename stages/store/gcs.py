"""A store in a Google Cloud Storage bucket. `STORAGE_EMULATOR_HOST` points it at an emulator.

Needs the `gcs` extra; import functools
import this module only for a `gs://` URI.
"""

import base64
import os
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from stages.contract import FileEntry
from stages.errors import StorageError, UserError
from stages.store.checksum import file_crc32c
from stages.store.conditional import CorruptObjectError, Listed, PreconditionFailed, StoredObject, object_parts
from stages.store.io_errors import io_errors

try:
    import requests
    import urllib3
    from google.api_core import exceptions as api
    from google.api_core.retry import Retry
    from google.auth.credentials import AnonymousCredentials
    from google.auth.exceptions import GoogleAuthError
    from google.cloud import storage
    from google.cloud.storage.exceptions import DataCorruption
    from google.cloud.storage.retry import DEFAULT_RETRY
except ImportError as error:
    raise UserError(f"gs:// needs the `gcs` extra ({error}); install it with: pip install 'temper-jax[gcs]'") from error

REQUEST_SECONDS = 30
"""The longest that one request may take."""
RETRY_SECONDS = 60.0
"""For how long a failing request is made again."""
TRANSIENT = DEFAULT_RETRY.with_timeout(RETRY_SECONDS)
ONCE = DEFAULT_RETRY.with_predicate(lambda _error: False)


@contextmanager
def gcs_errors(action: str, location: str) -> Generator[None]:
    """Turns the client's errors into `StorageError`s that say what was done, where, why it failed and what to do."""
    try:
        yield
    except api.PreconditionFailed as error:
        raise PreconditionFailed(f"{location}: exists already, or is not at the expected generation") from error
    except (
        api.GoogleAPIError,
        GoogleAuthError,
        requests.RequestException,
        urllib3.exceptions.HTTPError,
        DataCorruption,
        ConnectionError,
        TimeoutError,
    ) as error:
        cause = " ".join(str(error).split())
        raise StorageError(f"cannot {action} {location}: {cause}; {_remedy(error)}") from error


def _remedy(error: Exception) -> str:
    if isinstance(error, GoogleAuthError | api.Unauthorized):
        return "log in with `gcloud auth application-default login`"
    if isinstance(error, api.Forbidden):
        return "give this account the role Storage Object User on the bucket"
    if isinstance(error, api.NotFound):
        return "check the bucket's name, or create it"
    return "check the network and the bucket, then run again"


def make_client() -> storage.Client:
    """A client with this machine's credentials, or for the emulator without any."""
    if "STORAGE_EMULATOR_HOST" in os.environ:
        return storage.Client(project="emulator", credentials=AnonymousCredentials())
    with gcs_errors("log in for", "gs://"):
        return storage.Client()


def hexadecimal(crc32c: str | None) -> str:
    """The service's base64 checksum as eight hexadecimal digits."""
    return base64.b64decode(crc32c or "").hex()


def download(
    blob: storage.Blob,
    location: str,
    crc32c: str,
    target: Path,
    retry: Retry,
) -> Path:
    """Make `target` hold the blob's bytes, if it does not yet.

    Raises:
        CorruptObjectError: the blob is missing or its checksum is not `crc32c`.
    """
    with io_errors("write", target):
        if target.is_file() and file_crc32c(target) == crc32c:
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f"{target.name}.{uuid.uuid4().hex}")
        try:
            with gcs_errors("read", location), partial.open("wb") as file:
                try:
                    blob.download_to_file(file, timeout=REQUEST_SECONDS, retry=retry)
                except api.NotFound:
                    raise CorruptObjectError(f"{location}: missing") from None
            found = file_crc32c(partial)
            if found != crc32c:
                raise CorruptObjectError(f"{location}: crc32c is {found}, committed was {crc32c}")
            return partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)


class GcsStore:
    """Objects below `gs://bucket/prefix`; generations are the service's own."""

    def __init__(self, uri: str, retry: Retry = TRANSIENT) -> None:
        bucket, _, prefix = uri.removeprefix("gs://").rstrip("/").partition("/")
        if not bucket:
            raise UserError(f"store '{uri}': expected gs://bucket or gs://bucket/prefix")
        self.uri = f"gs://{bucket}/{prefix}".rstrip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._client = make_client()
        self._bucket = self._client.bucket(bucket)
        self._retry = retry

    def _blob(self, path: str) -> storage.Blob:
        object_parts(path)
        return self._bucket.blob(self._prefix + path)

    def get(self, path: str) -> StoredObject | None:
        blob = self._blob(path)
        with gcs_errors("read", self.location(path)):
            try:
                # The client itself does not try again when the answer that an object is missing is cut off.
                data = self._retry(blob.download_as_bytes)(timeout=REQUEST_SECONDS, retry=ONCE)
            except api.NotFound:
                return None
        # The answer's own header: generation and bytes are of one version.
        return StoredObject(data, str(blob.generation))

    def list(self, prefix: str) -> list[Listed]:
        folder = self._prefix + "/".join(object_parts(prefix)) + "/"
        with gcs_errors("list", self.location(prefix)):
            blobs = self._client.list_blobs(
                self._bucket,
                prefix=folder,
                fields="items(name,size,generation,updated),nextPageToken",
                timeout=REQUEST_SECONDS,
                retry=self._retry,
            )
            found = [self._listed(blob) for blob in blobs]
        return sorted(found, key=lambda listed: listed.path)

    def _listed(self, blob: storage.Blob) -> Listed:
        assert blob.updated is not None, "the listing asks for it"
        path = str(blob.name).removeprefix(self._prefix)
        return Listed(path, int(blob.size or 0), str(blob.generation), blob.updated.timestamp())

    def create(self, path: str, data: bytes) -> str:
        return self._write(path, data, 0)

    def swap(self, path: str, data: bytes, generation: str) -> str:
        return self._write(path, data, int(generation))

    def _write(self, path: str, data: bytes, expected: int) -> str:
        blob = self._blob(path)
        with gcs_errors("write", self.location(path)):
            blob.upload_from_string(
                data,
                content_type="application/octet-stream",
                if_generation_match=expected,
                timeout=REQUEST_SECONDS,
                checksum="crc32c",
                retry=self._retry,
            )
        return str(blob.generation)

    def upload(self, path: str, source: Path) -> FileEntry:
        blob = self._blob(path)
        with io_errors("read", source):
            size, crc32c = source.stat().st_size, file_crc32c(source)
            with gcs_errors(f"upload {source} to", self.location(path)), source.open("rb") as file:
                blob.upload_from_file(
                    file,
                    size=size,
                    if_generation_match=0,
                    timeout=REQUEST_SECONDS,
                    checksum="crc32c",
                    retry=self._retry,
                )
        if (blob.size, hexadecimal(blob.crc32c)) != (size, crc32c):
            raise StorageError(f"{self.location(path)}: stored bytes are not those of {source}; run again")
        return FileEntry(path=path, size=size, crc32c=crc32c, generation=str(blob.generation))

    def fetch(self, path: str, entry: FileEntry, target: Path) -> Path:
        return download(self._blob(path), self.location(path), entry.crc32c, target, self._retry)

    def checksum(self, path: str) -> str | None:
        blob = self._blob(path)
        with gcs_errors("read", self.location(path)):
            try:
                blob.reload(timeout=REQUEST_SECONDS, retry=self._retry)
            except api.NotFound:
                return None
        return hexadecimal(blob.crc32c)

    def delete(self, path: str) -> None:
        with gcs_errors("delete", self.location(path)):
            try:
                self._blob(path).delete(timeout=REQUEST_SECONDS, retry=self._retry)
            except api.NotFound:
                return

    def location(self, path: str) -> str:
        return f"{self.uri}/{path}"
