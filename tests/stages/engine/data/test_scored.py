"""Responses that are scored as wholes."""

import numpy as np

from stages.engine.data.batching import Group
from stages.engine.data.packing import choose_packing, count_targets
from stages.engine.data.scored import scored_as_wholes


def test_each_response_has_one_target_which_its_last_token_is_the_source_of() -> None:
    group = scored_as_wholes(Group((70, 71), [(80, 81, 2), (2,)], [np.array([True, False, True]), np.array([True])]))
    assert count_targets(group) == 2
    (packed,) = choose_packing([group], batch_size=1, micro_batch=1).pack([group])
    batch, there = packed.batch, packed.batch.target_mask[0]
    sources = batch.target_sources[0][there]
    assert batch.tokens[0][sources].tolist() == [2, 2]
    assert batch.positions[0][sources].tolist() == [4, 2]
    assert batch.branch_ids[0][sources].tolist() == [1, 2]
    assert packed.sequences[0][there].tolist() == [0, 1]
