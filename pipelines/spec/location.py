"""Where a pipeline keeps its results, and which folder a path in it is relative to."""

from pathlib import Path

from pipelines.spec.diagnostics import Place
from stages.sources.files import absolute_path

_PROJECT_MARKS = (".temper", ".git", "pyproject.toml")


def folder_of(place: Place | None, pipeline: Path) -> Path:
    """The folder that a path is relative to which is written at a place: that of its file, else of the pipeline."""
    return (Path(place.source) if place is not None and place.line else pipeline).absolute().parent


def store_uri(store: str | None, pipeline: Path, place: Place | None = None) -> str:
    """What `open_store` takes: a URI as it is, a path made absolute from the folder of the file that it is written in.

    Without a store: `.temper/store` in the nearest folder above the pipeline that has .temper, .git or pyproject.toml,
    or else beside the pipeline.
    """
    if store is not None:
        return store if "://" in store else str(Path(absolute_path(store, folder_of(place, pipeline))).resolve())
    folder = folder_of(None, pipeline)
    projects = (above for above in (folder, *folder.parents) if any((above / mark).exists() for mark in _PROJECT_MARKS))
    return str(next(projects, folder) / ".temper" / "store")
