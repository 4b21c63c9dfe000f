"""Slots that have come and gone, against a count of each."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from structures.rows.cancelling import cancel

SLOTS = st.lists(st.integers(0, 12), max_size=30)


@given(SLOTS, SLOTS)
def test_what_remains(deleted: list[int], inserted: list[int]) -> None:
    found = cancel(np.array(deleted, np.int32), np.array(inserted, np.int32))
    net = Counter(deleted)
    net.subtract(inserted)
    assert found[0].tolist() == sorted(slot for slot, count in net.items() for _ in range(count))
    assert found[1].tolist() == sorted(slot for slot, count in net.items() for _ in range(-count))


def test_many() -> None:
    rng = np.random.default_rng(4)
    deleted, inserted = rng.permutation(1 << 20)[:400_000].astype(np.int32), rng.permutation(1 << 20)[:500_000].astype(np.int32)
    wanted = np.setdiff1d(deleted, inserted), np.setdiff1d(inserted, deleted)
    assert all(map(np.array_equal, cancel(deleted, inserted), wanted))
