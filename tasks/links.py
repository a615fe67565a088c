"""Addresses of objects of a store that a browser can follow."""

from stages.store.conditional import ConditionalStore

CONSOLE = "https://console.cloud.google.com/storage/browser/_details"


def address(store: ConditionalStore, path: str) -> str:
    """Of an object: the console's page for one in a bucket, a `file:` address for one on this machine's disk."""
    place = store.location(path)
    if place.startswith("gs://"):
        return f"{CONSOLE}/{place.removeprefix('gs://')}"
    return f"file://{place}" if place.startswith("/") else place
