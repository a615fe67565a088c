"""Objects in Google Cloud Storage, by generation: `gs://bucket/object#generation`."""

import hashlib
import re
from pathlib import Path

from stages.contract import SourceRef
from stages.errors import UserError

FORM = re.compile(r"gs://(?P<bucket>[^/#?]+)/(?P<object>[^#]+)#(?P<generation>[0-9]+)", flags=re.ASCII)


def _parse(uri: str) -> re.Match[str]:
    match = FORM.fullmatch(uri)
    if match is None:
        raise UserError(
            f"source '{uri}': expected gs://bucket/object#generation; the generation is the number that "
            "`gcloud storage ls --all-versions` prints after the name"
        )
    return match


class BucketObjects:
    """Resolves `gs://`."""

    def check(self, uri: str) -> None:
        """Raises `UserError` when the form is wrong or there is no generation."""
        _parse(uri)

    def digest(self, uri: str) -> str:
        """Generation and crc32c, as `gs:generation-crc32c`.

        Raises:
            UserError: there is no such object of this generation.
        """
        # The client library takes a second to load and is optional: only pipelines with such a source need it.
        from stages.store import gcs

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
            CorruptObjectError: the object is gone or its bytes are other ones.
        """
        from stages.store import gcs

        match = _parse(source.uri)
        blob = gcs.make_client().bucket(match["bucket"]).blob(match["object"], generation=int(match["generation"]))
        folder = cache / "sources" / hashlib.sha256(source.uri.encode()).hexdigest()
        target = folder / match["object"].rpartition("/")[2]
        return gcs.download(blob, source.uri, source.digest.rpartition("-")[2], target, gcs.TRANSIENT)
