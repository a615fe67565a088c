"""What Orbax lets through when the storage below it fails."""

import sys


def storage_failures() -> tuple[type[Exception], ...]:
    """For an `except`: errors of the local disk, of saved data, and of the client of buckets if that is loaded."""
    failures: tuple[type[Exception], ...] = (OSError, ValueError, KeyError)
    if "gcsfs" not in sys.modules:
        return failures
    from aiohttp import ClientError
    from gcsfs.retry import ChecksumError, HttpError, NonRetryableError
    from google.auth.exceptions import GoogleAuthError

    return (*failures, ClientError, ChecksumError, HttpError, NonRetryableError, GoogleAuthError)
