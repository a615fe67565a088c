"""A teacher's tokens of targets that are packed into rows in any order."""

import numpy as np

from stages.engine.data.batching import Group
from stages.engine.data.packing import choose_packing
from stages.engine.data.top_tokens import TopTokensBatch, empty_table

GROUPS = [
    Group((1, 50, 51), [(60, 2)]),
    Group((1, 52), [(61, 62, 63, 64, 2)], [np.array([True, False, False, True, True])]),
    Group((1, 53, 54, 55), [(2,)]),
    Group((1, 56), [(65, 66, 2)]),
]
LEARNT = [60, 2, 61, 64, 2, 2, 65, 66, 2]


def test_what_was_put_under_each_target_in_one_packing_is_found_in_another() -> None:
    packing = choose_packing(GROUPS, batch_size=4, micro_batch=2)
    table = empty_table(GROUPS, 1)
    assert table.starts.tolist() == [0, 2, 5, 6]
    for packed in packing.pack(GROUPS):
        targets = packed.batch.targets[..., None]
        table.put(range(4), packed, TopTokensBatch(targets, np.repeat(-targets, 2, -1).astype(np.float32)))
    assert table.ids[:, 0].tolist() == LEARNT
    rows = [3, 1, 0]
    other = choose_packing(GROUPS, batch_size=3, micro_batch=3)
    for packed in other.pack([GROUPS[row] for row in rows]):
        found, mask = table.take(rows, packed), packed.batch.target_mask
        np.testing.assert_array_equal(found.ids[mask][:, 0], packed.batch.targets[mask])
        np.testing.assert_array_equal(found.logprobs[mask], -found.ids[mask] @ np.ones((1, 2)))
