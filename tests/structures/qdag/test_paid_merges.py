"""What a merge of quadtrees costs the versions beside it."""

from __future__ import annotations

import pytest

from structures.quadtree.layout import LEAF
from structures.quadtree.merging import REPLAYED
from structures.quadtree.trees import _SHARE, QuadTrees
from tests.naive.natural_join import entries
from tests.structures.qdag.machine import ONE_STEP


@pytest.mark.parametrize("between", [0, 500, 2_000])
def test_changes_do_not_pay_for_what_was_done_between_versions(between: int, monkeypatch: pytest.MonkeyPatch) -> None:
    trees = QuadTrees([(2, 0)], 1 << 22)
    n = 300 * LEAF
    given = entries([(i * 7 % n, i * 11 % n, i) for i in range(n)], 2)
    trees.bulk_load(1, 0, given)
    trees.delete(2, 0, given[: n // 2])
    with monkeypatch.context() as cheap:
        cheap.setattr("structures.quadtree.trees._SHARE", 1)
        trees.keep_up(2)  # begins
    begun = trees.steps
    while trees.steps - begun < between:
        assert trees.maintain(10)
    done, some = trees.steps - begun, 20
    for version in range(3, 6):
        before, spared = trees.steps, min(done, _SHARE * some - 1)
        trees.delete(version, 0, given[n // 2 + some * version :][:some])
        trees.keep_up(version)
        done -= spared
        paid = (_SHARE + REPLAYED) * some - spared
        assert paid <= trees.steps - before <= paid + ONE_STEP
    trees.check(trees.roots)
