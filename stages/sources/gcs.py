"""Google Cloud Storage: objects by generation, `gs://bucket/object#generation`, and folders, `gs://bucket/folder/`."""

import hashlib
import re
from pathlib import Path

from stages.contract import SourceRef
from stages.errors import UserError
from stages.sources.gcs_folder import folder_digest, open_folder

OBJECT = re.compile(r"gs://(?P<bucket>[^/#?]+)/(?P<object>[^#]+)#(?P<generation>[0-9]+)", flags=re.ASCII)
FOLDER = re.compile(r"gs://(?P<bucket>[^/#?]+)/(?P<prefix>[^#]*[^#/]/)", flags=re.ASCII)


def _parse(uri: str) -> re.Match[str]:
    match = OBJECT.fullmatch(uri)
    if match is None:
        raise UserError(
            f"source '{uri}': expected gs://bucket/object#generation or gs://bucket/folder/; the generation is the "
            "number that `gcloud storage ls --all-versions` prints after the name"
        )
    return match


class BucketObjects:
    """Resolves `gs://`."""

    def check(self, uri: str) -> None:
        """Raises `UserError` when the form is wrong, or an object has no generation."""
        if FOLDER.fullmatch(uri) is None:
            _parse(uri)

    def digest(self, uri: str) -> str:
        """Generation and crc32c, as `gs:generation-crc32c`; of a folder, those of all its objects.

        Raises:
            UserError: there is no such object of this generation, or none below the folder.
        """
        # The client library takes a second to load and is optional: only pipelines with such a source need it.
        from stages.store import gcs

        folder = FOLDER.fullmatch(uri)
        if folder is not None:
            return folder_digest(uri, folder["bucket"], folder["prefix"])
        match = _parse(uri)
        with gcs.gcs_errors("look up", uri):
            blob = (
                gcs.make_client()
                .bucket(match["bucket"])
                .get_blob(
                    match["object"],
                    generation=int(match["generation"]),
                    timeout=gcs.REQUEST_SECONDS,
                    retry=gcs.TRANSIENT,
                )
            )
        if blob is None:
            raise UserError(f"source {uri}: there is no such object of this generation")
        return f"gs:{match['generation']}-{gcs.hexadecimal(blob.crc32c)}"

    def open(self, source: SourceRef, cache: Path) -> Path:
        """A copy in the cache, checked against the digest.

        Raises:
            UserError: the folder holds other objects than when the plan was made.
            CorruptObjectError: the object is gone or its bytes are other ones.
        """
        from stages.store import gcs

        folder = FOLDER.fullmatch(source.uri)
        if folder is not None:
            return open_folder(source, folder["bucket"], folder["prefix"], cache)
        match = _parse(source.uri)
        blob = gcs.make_client().bucket(match["bucket"]).blob(match["object"], generation=int(match["generation"]))
        copies = cache / "sources" / hashlib.sha256(source.uri.encode()).hexdigest()
        target = copies / match["object"].rpartition("/")[2]
        return gcs.download(blob, source.uri, source.digest.rpartition("-")[2], target, gcs.TRANSIENT)
