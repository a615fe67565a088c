"""Where reports go: into the run's folder in the store, and to one place beside the pipeline's state."""

from pathlib import Path

from pipelines.spec.location import store_uri
from stages.errors import StorageError
from stages.store.conditional import ConditionalStore
from stages.store.layout import run_folder
from stages.store.records import write_object
from tasks.report.content import Content
from tasks.report.page import render_page


def project_state_dir(pipeline: Path) -> Path:
    """The `.temper` folder that a pipeline's runs write to, next to its default store."""
    return Path(store_uri(None, pipeline)).parent


def write_report(content: Content, store: ConditionalStore) -> Path:
    """Write the page to the store and to `.temper/reports/{pipeline}.html`; returns the latter.

    Raises:
        StorageError: one of the two could not be written.
    """
    page = render_page(content).encode()
    run = content.run
    target = project_state_dir(Path(run.path)) / "reports" / f"{run.pipeline}.html"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(page)
    except OSError as error:
        raise StorageError(f"cannot write {target}: {error.strerror}") from error
    write_object(store, f"{run_folder(run.pipeline, int(run.run_id[:4]), run.run_id)}/report.html", page)
    return target
