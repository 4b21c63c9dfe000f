"""The compact form that a merge makes of a tree is the one that a load makes of its entries."""

from __future__ import annotations

import random

import numpy as np
import pytest

from structures.quadtree.compact import LEAVES, NODES, compact_position
from structures.quadtree.layout import CODE_BITS, LEAF
from structures.quadtree.trees import QuadtreeRoot, QuadTrees
from tests.naive.natural_join import Entry, entries

NO_PINS = np.empty(0, np.int64)
_SHAPES = [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2), (4, 0), (4, 2)]


def _form(trees: QuadTrees, root: QuadtreeRoot) -> tuple[list[int], int]:
    """Of a tree without live blocks the nodes of its compact form, and how many words it has."""
    assert root.position == compact_position(0, False), "the tree has live blocks"
    compact, form = trees.forms.compact, next(form for form in trees.forms.forms if form.base == root.base)
    return compact[compact[root.base + NODES] : compact[root.base + LEAVES]].tolist(), form.end - form.base


def _merged(trees: QuadTrees, version: int) -> None:
    """As with one in eight changed, while nothing else is to be done."""
    trees._changed = [max(1, root.count // 8) for root in trees.roots]
    while trees.maintain(7):
        pass
    trees.keep_up(version)
    while trees.maintain(7):
        trees.reclaim(version, NO_PINS)
    trees.check(trees.roots)


@pytest.mark.parametrize("top", [2, 50, 3_000, 2**30 - 1])
@pytest.mark.parametrize("shape", _SHAPES)
def test_a_merge_makes_what_a_load_makes(shape: tuple[int, int], top: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever has changed: nodes that came to have few entries, tuples of many rows, codes beyond those that there were, and fewer. Trees
    in two parts reach as far as they can from the beginning, as they may grow early."""
    monkeypatch.setattr(QuadTrees, "_bits_for", lambda self, tree, most: CODE_BITS if self.shapes[tree].first else most.bit_length())
    rng, arity = random.Random(f"{shape} {top}"), shape[0]
    trees, slot, now = QuadTrees([shape], 1 << 22, LEAF + 1), 0, set[Entry]()
    for version in range(1, 9):
        codes = top if version % 3 else top // 5
        deleted = set(rng.sample(sorted(now), len(now) // rng.choice([2, 3, 20])))
        inserted = {(*(rng.randint(0, codes) for _ in range(arity)), slot + i) for i in range(rng.choice([LEAF, 4 * LEAF]) + LEAF // 2 + 1)}
        slot += len(inserted)
        now = now - deleted | inserted
        if version == 1:
            trees.bulk_load(1, 0, entries(sorted(inserted), arity))
            continue
        trees.delete(version, 0, entries(sorted(deleted), arity))
        trees.insert(version, 0, entries(sorted(inserted), arity))
        if version % 2:
            continue
        _merged(trees, version)
        fresh = QuadTrees([shape], 1 << 22, LEAF + 1)
        fresh.bulk_load(1, 0, entries(sorted(now), arity))
        assert fresh.roots[0].bits == trees.roots[0].bits
        assert _form(trees, trees.roots[0]) == _form(fresh, fresh.roots[0])
