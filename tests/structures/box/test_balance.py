"""How box trees are kept balanced when boxes come at one input: by rotations, by bounded rebuilds, or by their owners."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest

from structures.box import layout
from structures.box.tree import BoxTree
from structures.core.encoding import POS_INF
from structures.core.kernel import JIT
from tests.naive.box_join import Box, entries, pairs
from tests.structures.batches import apply_batch
from tests.structures.box.boxes import NO_PINS, random_entries, rows_of, same_rows


class Grown(NamedTuple):
    """A tree that boxes came to over time, and one that was loaded with all of them. After each batch: what it retired, in bytes, whether
    the tree was uneven, and the depth of its last leaf."""

    tree: BoxTree
    fresh: BoxTree
    retired: list[int]
    uneven: list[bool]
    depths: list[int]


def grown_to_the_right(n: int, length: int = 0, dimensions: int = 2, endless: int = 0) -> Grown:
    """Load half of n boxes, of this length in the first dimension if not 0, and insert the others in the order of their left ends.
    `endless`: how many of the first ones have no end there."""
    rng = np.random.default_rng(8)
    here = random_entries(rng, n, dimensions, 3)
    here = here.take(np.argsort(here.left[:, 0]))._replace(slot=np.arange(n, dtype=np.int32))
    if length:
        here.right[:, 0] = here.left[:, 0] + length
    here.right[:endless, 0] = POS_INF
    grown = Grown(BoxTree(dimensions, "pair"), BoxTree(dimensions, "pair"), [], [], [])
    tree, step = grown.tree, layout.CAP // 4
    tree.bulk_load(1, here.take(slice(0, n // 2)))
    for version, lo in enumerate(range(n // 2, n, step), 2):
        apply_batch(tree, version, here.take(slice(0)), here.take(slice(lo, lo + step)), None)
        grown.retired.append(int(tree.retired_bytes))
        tree.reclaim(version, NO_PINS)
        grown.uneven.append(tree.is_uneven)
        grown.depths.append(depth_at_the_right(tree))
    grown.fresh.bulk_load(1, here)
    assert same_rows(tree, grown.fresh)
    if not JIT:
        tree.check(tree.root)
    return grown


def depth_at_the_right(tree: BoxTree) -> int:
    W = tree.arena.W
    depth, o = 0, W.item(layout.TOP + layout.ROOT_)
    while not W.item(4 * o + layout.FLAGS) & layout.LEAF_NODE:  # blocks are named by half of their position
        depth, o = depth + 1, W.item(4 * o + layout.CHILD1)
    return depth


LARGE = (pytest.mark.soak, pytest.mark.skipif(not JIT, reason="needs compiled kernels"))


@pytest.mark.parametrize("size", [100, pytest.param(1600, marks=LARGE)])
def test_short_boxes_over_time_leave_the_tree_balanced(size: int) -> None:
    """By rotations: no path is long, and no change rebuilds more than `most_at_once`."""
    n = size * layout.CAP
    grown = grown_to_the_right(n, 2 * 10**9 // n)  # as long as from one box to the next but one
    assert not any(grown.uneven)
    assert max(grown.depths) <= math.log(2 * n / layout.CAP, 4 / 3) + 1
    assert max(grown.retired) < layout.most_at_once(grown.tree.arena.C, 0) * grown.tree.live_bytes / (2 * n)


@pytest.mark.parametrize("endless", [1, 6])
@pytest.mark.parametrize("size", [100, pytest.param(1600, marks=LARGE)])
def test_a_few_boxes_without_an_end_do_not_prevent_rotations(size: int, endless: int) -> None:
    """They cover everything that comes, and are lifted from node to node, up to nodes of a certain size. Otherwise the path would have 25
    and 141 nodes."""
    n = size * layout.CAP
    grown = grown_to_the_right(n, 2 * 10**9 // n, endless=endless)
    assert max(grown.depths) <= math.log(2 * n / layout.CAP, 4 / 3) + 1
    assert not any(grown.uneven)


@pytest.mark.parametrize("kind", ["pair", "self"])
@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.parametrize("longest", [3, 30, 300])
def test_trees_are_right_after_rotations(kind: str, dimensions: int, longest: int) -> None:
    """Boxes come at both sides, most of them short, and leave in the middle: rotations to both sides, single and double, beside slabs that
    some boxes cover and others do not."""
    rng = np.random.default_rng(longest)
    tree = BoxTree(dimensions, kind)
    none: list[Box] = []
    here: list[Box] = []
    for version in range(1, 21):
        came = []
        for i in range(layout.CAP // 2):
            middle = int(rng.choice([-1, 1])) * (10 * version + int(rng.integers(0, 10)))
            left = (middle, *(int(at) for at in rng.integers(0, 1000, dimensions - 1)))
            inputs = (longest if rng.random() < 0.1 else 1, *(500 for _ in left[1:]))
            right = tuple(lo + int(rng.integers(0, input + 1)) for lo, input in zip(left, inputs, strict=True))
            s = int(rng.integers(0, 2)) if kind == "pair" else 0
            came.append(Box(s, int(rng.random() < 0.05), left, right, version * layout.CAP + i))
        deleted = here[: layout.CAP // 4] if version % 3 == 0 else none
        here = here[len(deleted) :] + came
        root = apply_batch(tree, version, entries(deleted, dimensions), entries(came, dimensions), None)
        tree.reclaim(version, NO_PINS)
        if not JIT:  # leaves are small
            tree.check(root)
            assert rows_of(tree.rows(root), kind) == sorted(pairs(kind, here))
    fresh = BoxTree(dimensions, kind)
    fresh.bulk_load(1, entries(here, dimensions))
    assert rows_of(tree.rows(root), kind) == rows_of(fresh.rows(fresh.root), kind) != []


def test_large_subtrees_are_left_as_they_are() -> None:
    """Long boxes that come over time, of three dimensions, so that none is lifted at level 0: no change rebuilds more than `most_at_once`,
    the structure says when it is uneven, and rows are right."""
    grown = grown_to_the_right(100 * layout.CAP, 10**8, 3)
    assert grown.uneven == sorted(grown.uneven) and not grown.uneven[0] and grown.uneven[-1] and not grown.fresh.is_uneven
    assert max(grown.retired) < grown.fresh.live_bytes / 3, "more was rebuilt than is to be"


@pytest.mark.skipif(not JIT, reason="counts at sizes that need compiled kernels")
def test_a_long_way_is_rebuilt_at_its_end_a_bounded_part_at_a_time() -> None:
    """Nobody replaced the tree in time: what a change rebuilds does not grow with what has come since."""
    n = 500 * layout.CAP
    tree, _, retired, _, depths = grown_to_the_right(n, 10**7, 3)
    assert layout.LARGE_DEEP < max(depths) < 200
    endpoint = tree.live_bytes / (2 * n)
    assert max(retired) < layout.LARGE_MORE * layout.most_at_once(tree.arena.C, 0) * endpoint
