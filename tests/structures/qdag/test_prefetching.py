"""What is prefetched of the paths to several entries: exactly what the descents to them read below the root."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from structures.core.control import VERSION
from structures.core.kernel import JIT
from structures.qdag.qdag import And, Atom
from structures.quadtree import layout, prefetching
from structures.quadtree.changes import change_entries
from structures.quadtree.compact import CODE, NODE_WORDS, bytes_of, find_leaf, node_word, sizes_word
from structures.quadtree.layout import QuadtreeShape, digit, level_below
from structures.quadtree.prefetching import prefetch_paths
from structures.quadtree.search import child_of, ends_at
from structures.quadtree.trees import QuadTrees, in_order

pytestmark = pytest.mark.skipif(JIT, reason="prefetches are recorded in plain Python; test_modes.py runs this file so")

SLOTS = -layout.LEVELS  # the lowest level of a path that goes on to the slots
_CODES = 1 << 9
_LINE = {"M": 8, "compact": 8, "packed": 64}  # items of a cache line
Lines = set[tuple[str, int]]  # array, cache line of it


def _recorded(trees: QuadTrees, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The lines of these trees that are prefetched from here on, one after another."""
    found, nodes = list[tuple[str, int]](), trees.arrays[0]
    names = {id(getattr(nodes, name)): name for name in _LINE}

    def record(array: np.ndarray, position: int) -> None:
        name = names[id(array)]
        found.append((name, int(position) // _LINE[name]))

    monkeypatch.setattr(prefetching, "prefetch", record)
    return found


def _trees(shapes: Sequence[tuple[int, int]], seed: int) -> tuple[QuadTrees, np.ndarray]:
    """Trees of the same entries, compact with live parts: some of one tuple, many of one first coordinate, others apart."""
    rng = np.random.default_rng(seed)
    apart = rng.integers(0, _CODES, (500, 2))
    beside = np.column_stack((np.full(60, 77), rng.integers(0, _CODES, 60)))
    alike = np.full((layout.LEAF + 3, 2), 99)
    points = np.concatenate((apart, beside, alike))
    entries = np.column_stack((points, np.arange(len(points)))).astype(np.int32)
    trees = QuadTrees(shapes, 1 << 22, 1)
    for tree in range(len(shapes)):
        trees.bulk_load(1, tree, entries)
    for tree in range(len(shapes)):
        trees.delete(2, tree, entries[:500:13])
    return trees, np.delete(entries, np.s_[:500:13], axis=0)


def _lines(name: str, first: int, end: int) -> Lines:
    return {(name, at // _LINE[name]) for at in range(first, end)}


def _read(trees: QuadTrees, tree: int, entry: Sequence[int], lowest: int) -> Lines:
    """What a descent reads below the root, as `child_of` and `copy_leaf` do."""
    nodes, root, shape = trees.arrays[0], trees.roots[tree], trees.shapes[tree]
    k, f = shape
    found, o, level = Lines(), root.position, root.bits - 1 + (layout.CODE_BITS if f else 0)
    while o and not ends_at(nodes.W, o) and level >= lowest:
        o = int(child_of(nodes, root.base, o, k, digit(entry, 0, 1, k, f, level)))
        level = level_below(level, root.bits)
        if o == 0:
            break
        is_leaf = ends_at(nodes.W, o)
        if o > 0:
            items = (k + 1) * layout.LEAF if is_leaf else 1 << k
            found |= _lines("M", o, o + (layout.HEAD + items + 1) // 2)
        elif is_leaf:
            word = sizes_word(nodes.compact, root.base, o)
            found |= _lines("compact", word, word + 1)
            if level >= lowest:
                at, n, each = find_leaf(nodes.compact, root.base, o, shape, level)
                found |= _lines("packed", at, at + bytes_of(nodes.compact[root.base + CODE]) * k + n * each)
        else:
            word = node_word(nodes.compact, root.base, o, k)
            found |= _lines("compact", word, word + NODE_WORDS)
    return found


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("lowest", [SLOTS, 0, layout.CODE_BITS])
@pytest.mark.parametrize("chosen", [np.s_[::11], np.s_[500:560], np.s_[-9:]], ids=["spread", "of one cell", "of one tuple"])
def test_exactly_what_descents_read(first: int, lowest: int, chosen: slice, monkeypatch: pytest.MonkeyPatch) -> None:
    if lowest == layout.CODE_BITS and not first:
        lowest = layout.CODE_BITS // 6  # of a plain tree, the upper levels
    trees, entries = _trees([(2, first)], 3)
    others = np.array([(_CODES - 1, 3, 0), (77, _CODES - 1, 0)], np.int32)
    wanted = in_order(np.concatenate((entries[chosen], others)))
    assert 2 < len(wanted) <= layout.AHEAD
    root, prefetched = trees.roots[0], _recorded(trees, monkeypatch)
    paths = np.empty(layout.PATHS_WORDS, np.int64)
    tree = (root.position, root.bits, root.base)
    prefetch_paths(trees.arrays[0], tree, QuadtreeShape(2, first), wanted.reshape(-1), (0, wanted.size), lowest, paths, 0)
    assert set(prefetched) == Lines().union(*(_read(trees, 0, entry, lowest) for entry in wanted.tolist()))
    assert {array for array, _ in prefetched} >= {"compact"}


@pytest.mark.parametrize("first", [0, 1])
def test_changes_prefetch_a_block_of_entries_before_they_begin(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    trees, entries = _trees([(2, first)], 4)
    block = in_order(np.concatenate((entries[-layout.LEAF :], entries[:441:7])))[: layout.AHEAD]
    others = entries[1:50:7]
    assert len(block) == layout.AHEAD
    read = Lines().union(*(_read(trees, 0, entry, SLOTS) for entry in block.tolist()))
    trees.arena.C[VERSION] = 3
    prefetched = _recorded(trees, monkeypatch)
    change_entries(*trees.arrays, 0, block.reshape(-1), 0, False)
    assert set(prefetched) == read
    for entry in others:  # an entry alone is not worth it
        change_entries(*trees.arrays, 0, entry, 0, False)
    assert set(prefetched) == read
    trees.settle_missing()


def test_readings_prefetch_the_ways_to_given_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given entries of an atom over x and y: of R(y, z) the way to y, of S(x, y) that to both."""
    trees, entries = _trees([(2, 0), (2, 1), (2, 0)], 5)
    given, r, s = (0, 1), (1, 2), (0, 1)
    atoms = [
        Atom(frozenset(given), {frozenset(): (0, given)}),
        Atom(frozenset(r), {frozenset(): (0, r), frozenset({1}): (1, r)}),
        Atom(frozenset(s), {frozenset(): (2, s)}),
    ]
    items = in_order(entries[: 30 * layout.AHEAD : 31])
    assert 4 < len(items) < layout.AHEAD
    prefetched = _recorded(trees, monkeypatch)
    cursor = And(trees, 3, atoms).partners([trees.roots] * 3, 0, items)
    cursor.fill(1)
    at_once = len(prefetched)
    while not cursor.done:
        cursor.fill(1)
    of_r = [_read(trees, 1, (y, 0, 0), layout.CODE_BITS) for _, y, _ in items.tolist()]
    of_s = [_read(trees, 2, entry, 0) for entry in items.tolist()]
    assert set(prefetched) == Lines().union(*of_r, *of_s)
    assert len(prefetched) == at_once, "the ways to an item are prefetched once"
