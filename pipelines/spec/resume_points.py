"""Which saved steps a stage may go on from, by its policy."""

import functools
from collections.abc import Callable

from pipelines.spec.nodes import ResumePolicy
from stages.store.attempts import read_attempt
from stages.store.conditional import ConditionalStore
from stages.store.layout import StagePaths
from stages.store.progress import ProgressSurvey, survey_progress


def resume_points(
    store: ConditionalStore, paths: StagePaths, policy: ResumePolicy, run_id: str | None, limit: int
) -> ProgressSurvey:
    """At most `limit` points, best first; for `fresh` those that the run has saved."""
    match policy:
        case "none":
            return ProgressSurvey([], [])
        case "eager":
            return survey_progress(store, paths, limit=limit)
        case "fresh":
            return survey_progress(store, paths, _made_for(store, paths, run_id), limit)


def _made_for(store: ConditionalStore, paths: StagePaths, run_id: str | None) -> Callable[[str], bool]:
    @functools.cache
    def made_for(attempt: str) -> bool:
        record = read_attempt(store, paths, attempt)
        return record is not None and record.run_id == run_id

    return made_for
