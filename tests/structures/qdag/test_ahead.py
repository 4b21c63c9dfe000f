"""What is prefetched of the paths to several entries: all that a descent reads, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from structures.core.kernel import JIT
from structures.quadtree import ahead, layout
from structures.quadtree.ahead import request_paths
from structures.quadtree.compact import NODE_WORDS, NODES, bytes_of, find_leaf
from structures.quadtree.layout import Shape, digit, level_below
from structures.quadtree.search import child_of, ends_at
from structures.quadtree.trees import QuadTrees, in_order

pytestmark = pytest.mark.skipif(JIT, reason="requests are recorded in plain Python; test_modes.py runs this file so")

_CODES = 1 << 9
Lines = set[tuple[str, int]]  # array, cache line of it


def _lines(array: str, first: int, end: int, size: int) -> Lines:
    return {(array, at // size) for at in range(first, end)}


def _read(trees: QuadTrees, shape: Shape, entry: np.ndarray, lowest: int) -> Lines:
    """What a descent reads below the root, as `child_of` and `copy_leaf` do."""
    nodes, root = trees.arrays[0], trees.roots[0]
    k, f = shape
    found, o, level = Lines(), root.place, root.bits - 1 + (layout.CODE_BITS if f else 0)
    while o and not ends_at(nodes.W, o) and level >= lowest:
        o = int(child_of(nodes, root.base, o, k, digit(entry, 0, 1, k, f, level)))
        level = level_below(level, root.bits)
        if o > 0:
            items = (k + 1) * layout.LEAF if ends_at(nodes.W, o) else 1 << k
            found |= {("M", word // 8) for word in range(o, o + (layout.HEAD + items) // 2, 8)}
        elif o and ends_at(nodes.W, o) and level >= lowest:
            at, n, each = find_leaf(nodes.compact, root.base, o, shape, level)
            found |= _lines("packed", at, at + bytes_of(nodes.compact[root.base + 2]) * k + n * each, 64)
        elif o and not ends_at(nodes.W, o):
            w = int(nodes.compact[root.base + NODES]) + NODE_WORDS * ((~o >> 1 << k) >> 6)
            found |= _lines("compact", w, w + NODE_WORDS, 8)
    return found


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("whole", [True, False])
def test_all_of_a_path_is_requested_and_nothing_else(first: int, whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, shape = np.random.default_rng(3), Shape(2, first)
    lowest = -layout.LEVELS if whole else layout.CODE_BITS if first else 0
    trees = QuadTrees([shape], 1 << 22, 1)
    entries = np.column_stack((rng.integers(0, _CODES, (600, 2)), np.arange(600))).astype(np.int32)
    trees.bulk_load(1, 0, entries)
    trees.delete(2, 0, entries[:40])  # live leaves in a compact tree
    others = np.column_stack((rng.integers(0, _CODES, (20, 2)), np.arange(20))).astype(np.int32)
    wanted = in_order(np.concatenate((entries[30:60], others, entries[40:44])))[: layout.AHEAD]
    nodes, root = trees.arrays[0], trees.roots[0]
    names = {id(getattr(nodes, name)): name for name in ("M", "compact", "packed")}
    requested = Lines()

    def record(array: np.ndarray, place: int) -> None:
        requested.add((names[id(array)], int(place) // (64 // array.itemsize)))

    monkeypatch.setattr(ahead, "prefetch", record)
    paths = np.empty(layout.PATHS_WORDS, np.int64)
    request_paths(nodes, (root.place, root.bits, root.base), shape, wanted.reshape(-1), (0, wanted.size), lowest, paths, 0)
    read = Lines().union(*(_read(trees, shape, entry, lowest) for entry in wanted))
    assert {array for array, _ in read} >= {"M", "compact"}
    assert read <= requested
    beyond = {line for line in requested - read if line[0] == "M"}
    assert not beyond, "live blocks were requested that no descent reads"
