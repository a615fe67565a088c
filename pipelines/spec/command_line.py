"""Commands that people are told to give next, with what was laid over the pipeline's file."""

import shlex

from pipelines.spec.nodes import Pipeline


def command_line(pipeline: Pipeline, command: str, *words: str) -> str:
    """For example `temper approve sweep.yaml approve --profile approved`."""
    profile = [] if pipeline.profile is None else ["--profile", pipeline.profile]
    overrides = [part for override in pipeline.overrides for part in ("--set", override)]
    return shlex.join(["temper", command, str(pipeline.path), *words, *profile, *overrides])
