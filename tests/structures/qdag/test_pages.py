"""Pages go back to the system with what they held; those behind it too, which were requested in advance."""

from __future__ import annotations

import mmap
import sys
from pathlib import Path

import numpy as np
import pytest

from structures.core.control import NEXT_CHUNK, RECORDS, RECORDS_MOST, SHIFT, record_at
from structures.core.kernel import JIT
from structures.quadtree.trees import QuadTrees

NO_PINS = np.empty(0, np.int64)
_WORDS = mmap.PAGESIZE // 8  # of a page


def _behind(array: np.ndarray, used: int) -> int:
    """How many of the pages behind the first `used` words are in memory."""
    first = -(-used // _WORDS)
    with Path("/proc/self/pagemap").open("rb") as file:
        file.seek(array.__array_interface__["data"][0] // mmap.PAGESIZE * 8 + 8 * first)
        pages = np.frombuffer(file.read(8 * (len(array) // _WORDS - first)), np.uint64)
    return int(np.count_nonzero(pages >> np.uint64(63)))


def _ends(trees: QuadTrees) -> list[tuple[np.ndarray, int]]:
    """The arrays of a store, and how many words of each have been used."""
    C = trees.arena.C
    records = max(C.item(RECORDS), C.item(RECORDS_MOST))
    return [
        (trees.arena.M, C.item(NEXT_CHUNK) << C.item(SHIFT)),
        (trees.arena.Q, record_at(records)),
        (trees.forms.compact, trees.forms.forms[-1].end),
    ]


@pytest.mark.skipif(not JIT, reason="so many entries need compiled kernels")
@pytest.mark.skipif(sys.platform != "linux", reason="pages are looked up in /proc")
def test_nothing_stays_behind_what_was_used() -> None:
    """Pins held several times as much as there is, and were released: nothing stays behind the blocks, the records of retired ones, and the
    compact forms."""
    n, rng = 40_000, np.random.default_rng(7)
    trees = QuadTrees([(2, 0)], 1 << 23)
    entries = np.column_stack((rng.integers(0, 1 << 20, (n, 2)), np.arange(n))).astype(np.int32)
    trees.bulk_load(1, 0, entries)
    for version in range(2, 10):
        trees.delete(version, 0, entries[::2])
        trees.insert(version, 0, entries[::2])
        trees.reclaim(version, np.arange(1, version))
    trees.merge(10)
    ends = _ends(trees)
    for array, used in ends:  # as if they had been requested in advance
        array[used + _WORDS : used + 16 * _WORDS] = 0
        assert _behind(array, used)
    for version in range(11, 80):
        trees.keep_up(version)
        trees.reclaim(version, NO_PINS)
    assert trees.retired_bytes == 0, "something is still held"
    assert [_behind(array, used) for array, used in ends] == [0, 0, 0]
    assert _behind(trees.forms.compact, trees.forms.forms[-1].end) == 0
    trees.check(trees.roots)
