"""Whether intervals have partners, against all pairs, in two versions of a tree."""

from __future__ import annotations

import numpy as np
import pytest

from structures.interval_hits import have_partners
from structures.interval_tree import Entries, IntervalTree


def entries(rng: np.random.Generator, count: int, set_: int, width: int) -> Entries:
    left = rng.integers(0, 200, count)
    key = rng.integers(0, 3, count, np.int32)
    return Entries(np.full(count, set_, np.uint8), key, left, left + rng.integers(0, width, count), np.arange(count, dtype=np.int32))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("of", [0, 1])
def test_against_all_pairs(seed: int, of: int) -> None:
    print("seed", seed)
    rng = np.random.default_rng(seed)
    tree = IntervalTree("pair", 1 << 20)
    held, asked = entries(rng, 40 * seed, 1 - of, 6), entries(rng, 60, of, 6)
    tree.bulk_load(1, held)
    old, gone = tree.root, held.take(np.arange(0, len(held.key), 2))
    tree.apply(2, gone, held.take(np.arange(0)), None)
    for root, there in ((old, held), (tree.root, held.take(np.arange(1, len(held.key), 2)))):
        meet = (asked.left[:, None] <= there.right) & (there.left <= asked.right[:, None]) & (asked.key[:, None] == there.key)
        assert np.array_equal(have_partners(tree, root, asked), meet.any(axis=1))
    assert len(have_partners(tree, tree.root, asked.take(np.arange(0)))) == 0
