"""Where a pipeline keeps its results."""

from pathlib import Path

from stages.sources.files import absolute_path

_PROJECT_MARKS = (".temper", ".git", "pyproject.toml")


def store_uri(store: str | None, pipeline: Path) -> str:
    """What `open_store` takes: a URI as it is, a path made absolute from the pipeline's folder.

    Without a store: `.temper/store` in the nearest folder above the pipeline that has .temper, .git or pyproject.toml,
    or else beside the pipeline.
    """
    folder = pipeline.absolute().parent
    if store is not None:
        return store if "://" in store else str(Path(absolute_path(store, folder)).resolve())
    projects = (above for above in (folder, *folder.parents) if any((above / mark).exists() for mark in _PROJECT_MARKS))
    return str(next(projects, folder) / ".temper" / "store")
