"""What a stage tells of its own rows, gathered by version."""

from __future__ import annotations

import numpy as np

from service.views.collecting import RowCollector


def test_a_version_that_is_too_large_takes_no_other_with_it() -> None:
    """Rows of several versions are told at once; the first of them turns out to be too large."""
    collector = RowCollector(3)
    collector.told(False, np.array([0, 0, 1]), np.array([4, 5, 6], np.int32))
    collector.told(True, np.zeros(4, np.int64), np.arange(7, 11, dtype=np.int32))
    left = collector.delta(10)
    assert left is not None
    assert (left.cut, left.versions, left.starts, left.deletes, left.slots[0].tolist()) == (10, [11], [0, 1], [1], [6])
