"""What is no entry, or no step of a run, is refused before anything is touched."""

from __future__ import annotations

import numpy as np
import pytest

from structures.qdag.run import STEP_INSERT
from structures.quadtree.layout import CODE_BITS
from structures.quadtree.trees import QuadTrees
from tests.naive.natural_join import entries
from tests.structures.qdag.machine import SHAPES, Trees


@pytest.mark.parametrize("wrong", [(1, 2, 3, 4), (-1, 2, 3), (1, 1 << CODE_BITS, 3), (1, 2, -1), (1, 2, 1 << CODE_BITS)])
def test_what_is_no_entry_is_refused_first(wrong: tuple[int, ...]) -> None:
    trees = QuadTrees([(2, 0)], 1 << 16)
    trees.bulk_load(1, 0, entries([(1, 2, 3)], 2))
    before, given = trees.roots, np.array([wrong], np.int64 if len(wrong) == 3 else np.int32)
    message = "have 3 columns" if len(wrong) == 4 else "codes and slots are 0 to"
    for write in (trees.insert, trees.delete):
        with pytest.raises(ValueError, match=message):
            write(2, 0, given)
    with pytest.raises(ValueError, match=message):
        trees.expect(0, given, np.ones(1, np.bool_))
    with pytest.raises(ValueError, match=message):
        QuadTrees([(2, 0)], 1 << 16).bulk_load(1, 0, given)
    with pytest.raises(ValueError, match="cannot come"):
        QuadTrees([(2, 0)], 1 << 16).bulk_load(1, 0, entries([(1, 2, 3)], 2), 1 << CODE_BITS)
    assert trees.roots == before
    trees.check(trees.roots)


def test_what_is_no_step_is_refused_first() -> None:
    """A base that is not there was read from what lay behind the bases."""
    of = Trees(SHAPES[0], 1 << 16, least=17)
    before, flat = of.trees.roots, np.array([0, 0, 1], np.int32)
    for base in (-1, 100):
        with pytest.raises(ValueError, match="steps have 4 words, and one of"):
            list(of.runs.follow(2, np.array([[0, STEP_INSERT, base, 0]]), flat, 10))
    with pytest.raises(ValueError, match="steps have 4 words"):
        list(of.runs.follow(2, np.array([[0, STEP_INSERT, 0]]), flat, 10))
    with pytest.raises(TypeError, match="a contiguous array of int32"):
        list(of.runs.follow(2, np.array([[0, STEP_INSERT, 0, 0]]), flat.astype(np.int64), 10))
    assert of.trees.roots == before
    of.trees.check(of.trees.roots)
