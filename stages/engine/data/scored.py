"""Responses that are scored as wholes: each has one target, which follows its last token."""

import numpy as np

from stages.engine.data.batching import Group

_AFTER = 0
"""The target: nothing is predicted, so any token will do."""


def scored_as_wholes(group: Group) -> Group:
    """The same responses with one target each: what the model has read at their last token is what counts."""
    responses = [np.append(np.asarray(ids, np.int32), np.int32(_AFTER)) for ids in group.responses]
    return Group(group.prompt, responses, [np.arange(len(ids)) == len(ids) - 1 for ids in responses])
