"""Slots that have come and gone, against a count of each."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from structures.rows.cancelling import cancel

SLOTS = st.lists(st.integers(0, 12), max_size=30)


@given(SLOTS, SLOTS)
def test_what_remains(gone: list[int], come: list[int]) -> None:
    found = cancel(np.array(gone, np.int32), np.array(come, np.int32))
    net = Counter(gone)
    net.subtract(come)
    assert found[0].tolist() == sorted(slot for slot, count in net.items() for _ in range(count))
    assert found[1].tolist() == sorted(slot for slot, count in net.items() for _ in range(-count))


def test_many() -> None:
    rng = np.random.default_rng(4)
    gone, come = rng.permutation(1 << 20)[:400_000].astype(np.int32), rng.permutation(1 << 20)[:500_000].astype(np.int32)
    wanted = np.setdiff1d(gone, come), np.setdiff1d(come, gone)
    assert all(map(np.array_equal, cancel(gone, come), wanted))
