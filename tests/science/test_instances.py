"""Instances of the papers that no structure's own tests run, by their counters (`docs/science/coverage.md`)."""

from __future__ import annotations

from itertools import product

import pytest

from structures.core.kernel import JIT
from tests.structures.adaptive.test_adaptive import BOW_TIE, made, singles
from tests.structures.machines import read_all
from tests.structures.minesweeper.test_minesweeper import of

Tuples = list[tuple[int, ...]]


@pytest.mark.parametrize("n", [10, 40])
def test_a_proof_of_two_comparisons(n: int) -> None:
    """*Towards Instance Optimal Join Algorithms*, Example 3.1: what S2 and T prove is not forgotten as X moves on."""
    up = [(i,) for i in range(1, n + 1)]
    given: list[Tuples] = [up, list(product(range(1, n + 1), repeat=2)), [(2, 2)], [(1,), (3,)]]
    miner = of([(0,), (0, 1), (1, 2), (2,)], (0, 1, 2), given)
    cursor = miner.rows(miner.root)
    assert read_all(cursor) == [] and cursor.counters["probes"] == 5


@pytest.mark.parametrize("n", [5, 10, 20])
def test_equal_groups_of_one_relation(n: int) -> None:
    """The same paper, Example D.2: R(A, C), S(B, C), even and odd; n² comparisons prove what n³ would without those within a relation."""
    up = range(1, n + 1)
    given: list[Tuples] = [[(a, 2 * k) for a in up for k in up], [(b, 2 * k - 1) for b in up for k in up]]
    for order, probes in (((0, 1, 2), 2 * n * n + 3), ((2, 0, 1), 2 * n)):
        miner = of([(0, 2), (1, 2)], order, given)
        cursor = miner.rows(miner.root)
        assert read_all(cursor) == [] and cursor.counters["probes"] <= probes, order


@pytest.mark.parametrize(("n", "m"), [(3, 4), (10, 10)])
def test_gadgets(n: int, m: int) -> None:
    """The same paper, Lemma 4.8: holes of R and of T that are all crossed; no algorithm tells without a look at each crossing."""
    ends = [singles(range(0, 2 * count + 1, 2)) for count in (n, m)]
    crossings = list(product(range(1, n + 1), range(1, m + 1)))
    for filled in (None, *crossings[:: n + 1]):
        points: Tuples = []
        for i, j in crossings:
            points += [(2 * i - 1, 2 * j), (2 * i, 2 * j - 1)] if (i, j) != filled else [(2 * i - 1, 2 * j - 1), (2 * i, 2 * j)]
        _, tree = made(BOW_TIE, [ends[0], points, ends[1]])
        cursor = tree.rows(tree.root)
        assert len(read_all(cursor)) == (filled is not None)
        assert n * m <= cursor.counters["probes"] <= n * m + n + 1


@pytest.mark.parametrize("n", [5, 10, 20] if JIT else [5])
def test_what_follows_for_a_pattern_is_remembered(n: int) -> None:
    """*Beyond Worst-case Analysis for Joins with Minesweeper*, Example 4.1: R has no c below 1, S no odd c, T no even one: n² steps, where
    without what was inferred for (*, b) each of n² pairs would take n."""
    pairs = list(product(range(n), repeat=2))
    given: list[Tuples] = [
        [(a, b, c) for a, b in pairs for c in range(1, 2 * n + 1)],
        [(b, 2 * i) for b in range(n) for i in range(n + 1)],
        [(2 * i + 1,) for i in range(n)],
    ]
    miner = of([(0, 1, 2), (1, 2), (2,)], (0, 1, 2), given)
    cursor = miner.rows(miner.root)
    assert read_all(cursor) == [] and cursor.counters["probes"] <= n * n + 2 * n and cursor.steps <= 12 * n * n
