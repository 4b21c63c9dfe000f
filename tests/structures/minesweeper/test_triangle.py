"""The triangle by Minesweeper: rows and probes against the twins, in any order of columns; how few pairs are looked at; small trees, short
calls, clones; what the trees of readings hold is true, and `check()` sees what is not."""

from __future__ import annotations

import random
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

from structures.core.kernel import JIT
from structures.index.indexes import OrderedIndexes
from structures.minesweeper import minesweeper
from structures.minesweeper.cds import COUNT, KEPT_SIZE, MADE, NODE_WORDS, PRIVATE_SIZE, Size
from structures.minesweeper.triangle import ABOVE, FIRST, GAPS, KEY, LEFT, OWN, RIGHT, WHOLE, TriangleTree
from tests.naive.minesweeper import Miner
from tests.naive.natural_join import join
from tests.structures.batches import drained
from tests.structures.machines import Row, drive, read_all, transposed
from tests.structures.minesweeper.machine import TriangleMachine, mined
from tests.structures.minesweeper.test_minesweeper import FULL, SMALL, Tuples, entries, loaded, of, slotted

TRIANGLE = [(0, 1), (1, 2), (0, 2)]
VALUES: list[Any] = [range(4), range(9), FULL]


def test_against_the_twin() -> None:
    drive(TriangleMachine, 20 if JIT else 6, 10)


def drawn(rng: random.Random, values: Any, most: int) -> list[Tuples]:
    """The tuples of R, S and T; often those of one graph."""
    given: list[Tuples] = [[(rng.choice(values), rng.choice(values)) for _ in range(rng.randrange(most))] for _ in range(3)]
    return [given[0]] * 3 if rng.randrange(4) == 0 else given


def rules_out_no_tuple(tree: TriangleTree, S: Tuples, T: Tuples) -> None:
    """S has no b of GAPS, and of no leaf a c of its intervals; nor T of those under a."""
    words = tree.arrays.table
    for v, low, high, _ in tree.intervals():
        key = int(words[NODE_WORDS * v + KEY])
        if v == GAPS:
            assert not any(low <= b <= high for b, _ in S)
        elif v == OWN and words[NODE_WORDS * v + WHOLE]:
            assert not any(a == key and low <= c <= high for a, c in T)
        elif v >= FIRST and words[NODE_WORDS * v + LEFT] == 0:
            assert not any(b == key and low <= c <= high for b, c in S)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 40))])
def test_probes_are_the_twins(seed: int) -> None:
    """With atoms and columns in any order: rows in their order, as many probes as there are of least tuples in no gap."""
    rng = random.Random(seed)
    orders = list(permutations(range(3)))
    for number in range(60 if JIT else 6):
        order, given = rng.choice(orders), drawn(rng, VALUES[number % 3], 8)
        variables = [tuple(rng.sample(own, 2)) for own in rng.sample(TRIANGLE, 3)]
        miner, relations = of(variables, order, given), list(map(slotted, given))
        wanted, twin = join(relations, variables), Miner(list(zip(relations, variables, strict=True)), order)
        cursor = miner.rows(miner.root)
        rows = read_all(cursor, 2)
        assert rows == twin.rows and set(rows) == wanted and len(rows) == len(wanted)
        assert (cursor.counters["probes"], cursor.counters["outputs"]) == (len(twin.probes), twin.outputs), (variables, order, given)
        assert cursor.counters["pairs"] <= 2 * len(twin.probes) * 64 and miner.kept() == []
        assert miner.is_empty(miner.root) == (True if not wanted else None)
        miner.check()
        position = rng.randrange(3)
        cursor = miner.partners(miner.root, position, entries(miner, variables, position, relations[position][1::2]))
        assert sorted(read_all(cursor, 3)) == sorted(row for row in wanted if row[position] % 2)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 40))])
@pytest.mark.parametrize("how", ["large", "small", "short"])
def test_what_a_reading_knows_is_true(monkeypatch: pytest.MonkeyPatch, how: str, seed: int) -> None:
    """After every call, with a tree that is cleared again and again too, and with calls of a few steps; clones go on from anywhere."""
    rng, resets = random.Random(seed), 0
    if how == "short":
        monkeypatch.setattr(minesweeper.MinesweeperCursor, "_BUDGET", 5)
    for number in range(40 if JIT else 4):
        given = drawn(rng, VALUES[number % 3], 30)
        miner = of(TRIANGLE, (0, 1, 2), given, (SMALL, SMALL) if how == "small" else (PRIVATE_SIZE, KEPT_SIZE))
        cursor, rows = miner.rows(miner.root), list[Row]()
        left = []
        while not cursor.done:
            rows += transposed(cursor.fill(2))
            if (tree := cursor._own.tree) is not None:
                assert isinstance(tree, TriangleTree)
                tree.check()
                rules_out_no_tuple(tree, given[1], given[2])
            if rng.randrange(5) == 0:
                left.append((cursor, list(rows)))
                cursor = cursor.clone()
        wanted = join(list(map(slotted, given)), TRIANGLE)
        assert set(rows) == wanted and len(rows) == len(wanted)
        for other, begun in left[:3]:
            assert begun + read_all(other, 3) == rows
        resets += cursor.counters["resets"]
    assert (resets > 0) == (how == "small") or seed > 0 or not JIT


@pytest.mark.parametrize("n", [10, 30])
def test_few_pairs_where_each_is_ruled_out(n: int) -> None:
    """R = [n] x [n], S = [n] x {2}, T = [n] x {1}, no row: the general tree rules out n² pairs, this one looks at 4 n of them."""
    up = range(1, n + 1)
    given: list[Tuples] = [list(product(up, repeat=2)), [(b, 2) for b in up], [(a, 1) for a in up]]
    miner = of(TRIANGLE, (0, 1, 2), given)
    cursor = miner.rows(miner.root)
    assert read_all(cursor) == [] and cursor.counters["probes"] == 2 * n + 3 and cursor.counters["pairs"] == 4 * n
    assert cursor.steps < 30 * n and miner.is_empty(miner.root)
    general = of([*TRIANGLE, (0, 1)], (0, 1, 2), [*given, given[0]])  # a fourth atom makes it another query
    other = general.rows(general.root)
    assert read_all(other) == [] and other.counters["probes"] == 2 * n + 3 and "pairs" not in other.counters and other.steps > 2 * n * n


def test_a_graph_by_one_index() -> None:
    """Cycles of three edges in one relation, as all three atoms read it."""
    edges = [(x, (x + step) % 12, x * 3 + step) for x in range(12) for step in (1, 4, 7)]
    indexes = OrderedIndexes(1 << 20)
    indexes.begin(1)
    atoms = [(0, (0, 1)), (0, (1, 2)), (0, (2, 0))]
    miner = mined(indexes, {}, atoms, (2, 0, 1), {0: edges})
    cursor = miner.rows(miner.root)
    assert sorted(read_all(cursor, 5)) == sorted(join([edges] * 3, [own for _, own in atoms])) != []
    assert 0 < cursor.counters["pairs"]


def test_check_sees_what_is_wrong() -> None:
    n = 12
    given: list[Tuples] = [list(product(range(n), repeat=2)), [(b, 2) for b in range(n)], [(a, 1) for a in range(n)]]
    for word, name in ((WHOLE, "M6"), (LEFT, "M5"), (KEY, "M5"), (ABOVE, "M5"), (COUNT, "M3")):
        miner = of(TRIANGLE, (0, 1, 2), given)
        cursor = miner.rows(miner.root)
        read_all(cursor)
        miner.check()
        T = cursor._own.tree.arrays.table
        starts = range(NODE_WORDS * FIRST, NODE_WORDS * int(T[MADE]), NODE_WORDS)
        u = next(u for u in starts if T[u + LEFT] and T[u + WHOLE] and T[u + ABOVE])
        T[u + word] = {WHOLE: 0, LEFT: T[u + RIGHT]}.get(word, T[u + word] ^ (1 << 20))
        with pytest.raises(AssertionError, match=name):
            miner.check()


@pytest.mark.skipif(not JIT, reason="tens of thousands need compiled kernels; the run with the JIT on has them")
def test_tens_of_thousands() -> None:
    """Random edges, by a tree that grows, and by a small one; and where no pair has a row, steps grow by far less than the pairs."""
    rng = np.random.default_rng(5)
    edges = np.unique(rng.integers(0, 1_000, (20_000, 2)), axis=0)
    matrix = np.zeros((1_000, 1_000), np.int64)
    matrix[edges[:, 0], edges[:, 1]] = 1
    wanted = int(((matrix @ matrix) * matrix).sum())
    for size in (PRIVATE_SIZE, Size(2_000, 4_000)):
        miner = loaded(TRIANGLE, (0, 1, 2), [edges] * 3, (size, size))
        cursor = miner.rows(miner.root)
        assert drained(cursor) == wanted and (cursor.counters["resets"] > 0) == (size != PRIVATE_SIZE)
        miner.check()
    steps = []
    for n in (50, 200):
        square = np.indices((n, n)).reshape(2, -1).T
        up = np.arange(n)
        miner = loaded(TRIANGLE, (0, 1, 2), [square, np.column_stack((up, up * 0 + 2)), np.column_stack((up, up * 0 + 1))])
        cursor = miner.rows(miner.root)
        assert drained(cursor) == 0
        steps.append(cursor.steps)
    assert steps[1] < 6 * steps[0]
