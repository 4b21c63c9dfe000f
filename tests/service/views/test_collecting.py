"""What a stage tells of its own rows, gathered by version."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from service.views.collecting import RowCollector


def test_a_version_that_is_too_large_takes_no_other_with_it() -> None:
    """Rows of several versions are told at once; the first of them turns out to be too large."""
    collector = RowCollector(3)
    collector.told(False, np.array([0, 0, 1]), np.array([4, 5, 6], np.int32))
    collector.told(True, np.zeros(4, np.int64), np.arange(7, 11, dtype=np.int32))
    left = collector.delta(10)
    assert left is not None
    assert (left.cut, left.versions, left.starts, left.deletes, left.slots[0].tolist()) == (10, [11], [0, 1], [1], [6])


@pytest.mark.parametrize("seed", range(30))
def test_runs(seed: int) -> None:
    """Told as stages do it: some versions at once, or one in pieces, of each the rows that go before those that come."""
    random, most = Random(seed), 6
    collector = RowCollector(most)
    told: dict[int, tuple[list[int], list[int]]] = {}
    first = slot = 0
    for _ in range(random.randrange(9)):
        versions = random.choice((1, 1, 3))
        for _ in range(random.randrange(1, 4) if versions == 1 else 1):
            for inserted in (False, True):
                offsets = sorted(random.randrange(first, first + versions) for _ in range(random.randrange(most)))
                collector.told(inserted, np.array(offsets, np.int64), np.arange(slot, slot + len(offsets), dtype=np.int32))
                for offset in offsets:
                    told.setdefault(offset, ([], []))[inserted].append(slot)
                    slot += 1
        first += versions
    cut = max((offset for offset, (gone, come) in told.items() if len(gone) + len(come) > most), default=-11)
    wanted = [(10 + offset, gone, come) for offset, (gone, come) in sorted(told.items()) if offset > cut]
    delta = collector.delta(10)
    if delta is None:
        assert not told
        return
    assert delta.cut == 10 + cut
    found = []
    for number, version in enumerate(delta.versions):
        part = delta.part(number, number + 1)
        rows = part.slots[0].tolist()
        found.append((version, rows[: part.deletes[0]], rows[part.deletes[0] :]))
    assert found == wanted
