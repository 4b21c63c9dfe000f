"""Chains and bow-ties against their naive twin; what the paper claims of them, by counting; and errors."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from structures.adaptive.bow_tie import BowTie, block
from structures.adaptive.elimination import Elimination
from structures.adaptive.intersect import Intersect, Member
from structures.core.kernel import JIT
from structures.index.indexes import Entries, OrderedIndexes
from tests.naive.natural_join import Entry, join
from tests.structures.adaptive.machine import AdaptiveMachine, Variables, adaptive_of
from tests.structures.batches import Changes, apply_steps, apply_to_indexes, drained, follow_batch, follow_steps
from tests.structures.index.machine import packed
from tests.structures.machines import Row, drive, read_all

EXTREMES = -(2**63), 2**63 - 1
BOW_TIE: Sequence[Variables] = [(0,), (0, 1), (1,)]


def test_against_the_twin() -> None:
    drive(AdaptiveMachine, 10 if JIT else 5, 12)


def made(variables: Sequence[Variables], given: Sequence[Sequence[tuple[int, ...]]]) -> tuple[OrderedIndexes, Any]:
    """Of tuples, whose slots are their numbers."""
    indexes = OrderedIndexes(1 << 24)
    indexes.begin(1)
    return indexes, adaptive_of(indexes, {}, list(enumerate(variables)), dict(enumerate(map(slotted, given))))


def slotted(tuples: Sequence[tuple[int, ...]]) -> list[Entry]:
    return [(*one, slot) for slot, one in enumerate(tuples)]


def singles(values: Sequence[int] | range) -> list[tuple[int]]:
    return [(value,) for value in values]


def some_values(rng: random.Random) -> list[int]:
    """A few, from a small range or from all there are."""
    span = rng.choice([3, 40, 3000, 2**63])
    return [rng.choice(EXTREMES) if rng.random() < 0.1 else rng.randrange(-span, span) for _ in range(rng.randrange(1, 9))]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak), pytest.param(2, marks=pytest.mark.soak)])
def test_random_chains(seed: int) -> None:
    rng, met = random.Random(seed), 0
    for _ in range(150 if JIT else 25):
        arities = [rng.randrange(1, 4) for _ in range(rng.randrange(2, 5))]
        pool = some_values(rng)
        given = [[tuple(rng.choice(pool) for _ in range(k)) for _ in range(rng.randrange(10))] for k in arities]
        variables = [tuple(range(k)) for k in arities]
        _, tree = made(variables, given)
        cursor = tree.rows(tree.root)
        rows = read_all(cursor, rng.choice([1, 3, 100]))
        wanted = join(list(map(slotted, given)), variables)
        assert set(rows) == wanted and len(rows) == len(wanted)
        tuples = {tuple(given[a][row[a]] for a in range(len(arities))) for row in wanted}
        counted = cursor.counters
        assert counted["outputs"] == len(tuples) and cursor.dead_ends == counted["probes"] - len(tuples) >= 0
        distinct = sum(len(set(one)) for one in given)
        assert counted["lookups"] <= len(arities) * (distinct + 1) and counted["probes"] <= distinct, "each look-up passes an entry"
        met += len(tuples)
    assert met > (50 if JIT else 8)


def holes(values: set[int], others: set[int]) -> int:
    """Between neighbours of these, those that have one of the others."""
    ascending = sorted(values)
    return sum(any(low < v < high for v in others) for low, high in zip(ascending, ascending[1:], strict=False))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak), pytest.param(2, marks=pytest.mark.soak)])
def test_random_bow_ties(seed: int) -> None:
    """Theorem 4.2, by counting: points looked at, with and without room on the stack; and Algorithm 9 has the same rows."""
    rng, met = random.Random(seed), 0
    for _ in range(150 if JIT else 25):
        xs, ys = some_values(rng), some_values(rng)
        given = [singles([rng.choice(xs) for _ in range(rng.randrange(6))]), [], singles([rng.choice(ys) for _ in range(rng.randrange(6))])]
        given[1] = [(rng.choice(xs), rng.choice(ys)) for _ in range(rng.randrange(20))]
        _, tree = made(BOW_TIE, given)
        tree.check()
        wanted = join(list(map(slotted, given)), BOW_TIE)
        h_x, h_y = (holes({v for (v,) in given[2 * j]}, {point[j] for point in given[1]}) for j in (0, 1))
        outputs = {given[1][row[1]] for row in wanted}
        for options in ({}, {"most_ranges": 1}, None):
            cursor = Elimination.rows(tree, tree.root) if options is None else tree.rows(tree.root, **options)
            rows = read_all(cursor, rng.choice([1, 3, 100]))
            assert set(rows) == wanted and len(rows) == len(wanted)
            counted = cursor.counters
            assert counted["outputs"] == len(outputs) and cursor.dead_ends == counted["probes"] - len(outputs) >= 0
            if options == {}:
                assert counted["probes"] <= 2 * (h_x + 1) * (h_y + 1) + len(outputs) and counted["forgotten"] == 0
            elif options:
                assert counted["ranges"] <= 1 and counted["probes"] <= len(set(given[1]))
        met += len(outputs)
    assert met > (30 if JIT else 5)


N = 50
CHAINS: dict[str, tuple[Sequence[Variables], Sequence[Sequence[tuple[int, ...]]], tuple[int, int]]] = {
    "I1: even and odd": ([(0,), (0,)], [singles(range(2, 2 * N + 1, 2)), singles(range(3, 2 * N + 2, 2))], (0, 2 * N + 1)),
    "I2: apart": ([(0,), (0,)], [singles(range(N)), singles(range(N, 2 * N))], (0, 3)),
    "I2: apart, a third in the way": ([(0,)] * 3, [singles(range(N)), singles(range(0, N, 2)), singles([N])], (0, 4)),
    # Example 2.4 of Minesweeper: a witness of each R is found once, whatever the number of its partners
    "I3: two groups": ([(0,), (0, 1)], [singles(range(1, N + 1)), [(i, j) for i in (1, 2) for j in range(N)]], (2 * N, 2 * N + 3)),
}


@pytest.mark.parametrize("name", CHAINS)
def test_claims_of_chains(name: str) -> None:
    """Rows and look-ups."""
    variables, given, wanted = CHAINS[name]
    _, tree = made(variables, given)
    cursor = tree.rows(tree.root)
    rows = read_all(cursor)
    assert (len(rows), cursor.counters["lookups"]) == wanted
    assert set(rows) == join(list(map(slotted, given)), variables)


def cross(n: int) -> list[list[tuple[int, ...]]]:
    """Example 4.1: R and T lack two values, at which all points of S lie."""
    out = n // 2, (n + 1) // 2 + 1
    left = singles([i for i in range(1, n + 1) if i not in out])
    arms = {(i, o) for o in out for i in range(1, n + 1)}
    return [left, sorted(arms | {(o, i) for i, o in arms}), left]


@pytest.mark.parametrize("n", [3, 5, 7, 63, 201])
def test_example_4_1(n: int) -> None:
    """The points looked at do not grow, by one index the look-ups do."""
    _, tree = made(BOW_TIE, cross(n))
    cursor = tree.rows(tree.root)
    assert read_all(cursor) == []
    assert cursor.counters["probes"] == cursor.dead_ends == (0 if n == 3 else 8) and cursor.counters["lookups"] < 400
    one = Elimination.rows(tree, tree.root)
    assert read_all(one) == [] and one.counters["lookups"] == (6 if n == 3 else 5 * n - 7)


def test_holes_of_r_and_of_t_alone() -> None:
    """S is a column in a hole of R, or a row in one of T: a point of the first hole is enough, by Algorithm 9 for R alone."""
    n = 200
    ends, all_ = singles([0, n]), singles(range(n + 1))
    for given, least in (
        ([ends, [(n // 2, i) for i in range(n)], all_], 1),
        ([all_, [(i, n // 2) for i in range(n)], ends], 1),
        ([ends, [(i, i) for i in range(1, n)], ends], 1),
    ):
        _, tree = made(BOW_TIE, given)
        cursor = tree.rows(tree.root)
        assert read_all(cursor) == [] and cursor.counters["probes"] == least, given


def test_duplicates_are_a_product() -> None:
    """Groups of several leaves, told by bits from any place."""
    n = 30
    given = [singles([1, 1, 2]), [(1, 5)] * n + [(2, 6)], singles([5] * n + [6])]
    _, tree = made(BOW_TIE, given)
    wanted = join(list(map(slotted, given)), BOW_TIE)
    for limit in (1, 7, 1000):
        cursor = tree.rows(tree.root)
        begun = cursor.fill(limit).T.tolist()
        other = cursor.clone()
        for one in (cursor, other):
            rows = [*map(tuple, begun), *read_all(one, limit)]
            assert set(rows) == wanted and len(rows) == len(wanted) == 2 * n * n + 1
    assert cursor.counters["outputs"] == 2


def test_a_stack_that_grows_and_one_that_may_not() -> None:
    """Each x has a point in a hole of T below those before it: all ranges wait. The holes that are forgotten are met by another x again."""
    n = 150
    given = [singles(range(2 * n)), [(x, 2 * (n - x % n) - 1) for x in range(2 * n)], singles(range(0, 2 * n + 1, 2))]
    _, tree = made(BOW_TIE, given)
    counted = []
    for most in (1 << 16, 70):
        cursor = tree.rows(tree.root, most_ranges=most)
        early = cursor.clone()
        assert read_all(cursor) == [] == read_all(early, 2) and early.counters == cursor.counters
        counted.append(cursor.counters)
    assert (counted[0]["probes"], counted[0]["forgotten"]) == (n, 0) and counted[0]["ranges"] == n
    assert counted[1]["ranges"] == 70 and counted[1]["forgotten"] > 0 and counted[1]["probes"] > n


def test_levels_come_with_points_far_away() -> None:
    """Small numbers of either sign need few; a batch, and single changes, raise the top, once; pinned versions keep their own."""
    indexes, tree = made(BOW_TIE, [singles([-3, 0, 4]), [(-3, 1), (0, 1), (4, 2)], singles([1, 2])])
    assert tree.root.levels == (1,), "-8 to 7 are one block of level 1"
    old, slot, rows = tree.root, 100, 3
    for version, (x, top) in enumerate([(9, 2), (-(10**6), 6), (2**63 - 1, 16), (-(2**63), 16)], 2):
        indexes.begin(version)
        inserted = [Changes(packed([], 2), packed([one], 2)) for one in ((x, slot), (x, 1, slot), (1, x, slot))]
        numbers = [tree.members[m].index for m in (0, 1, 2)]
        if version % 2:
            follow_batch(tree, apply_to_indexes(indexes, dict(zip(numbers, inserted, strict=True))), None)
        else:
            widest = packed([(x, 0, slot), (x, 1, slot), (1, x, slot)], 2)
            run = apply_steps(indexes, np.array(numbers), np.ones(3, np.int8), widest, np.array([0, 1, 1]))
            found = follow_steps(tree, run, 10)
            assert {step: rows.T.tolist() for step, rows in found.items()} == {1: [[slot, slot, 0]]}
        tree.check()
        rows += 1
        assert tree.root.levels[0] == top and len(read_all(tree.rows(tree.root))) == rows
        assert len(read_all(tree.rows(old))) == 3
        slot += 1
    assert tree.own_bytes > 0
    while not tree.close(1):
        indexes.check()
    indexes.reclaim(version, np.empty(0, np.int64))
    indexes.check()
    assert tree.own_bytes == 0


@pytest.mark.parametrize("x", [*EXTREMES, 0, -1, 7, 8, -8, -9, 10**6, -(10**6)])
def test_blocks_nest(x: int) -> None:
    for level in range(15):
        here = block(x, level)
        assert here == (x + 8 * (16**level - 1) // 15) >> 4 * level
        assert block(x, level + 1) == (here + 8) >> 4
    assert block(x, 16) == 0


@pytest.mark.parametrize("variables", [[(0,)], [(0,)] * 9, [(0, 1), (1, 2)], [(0,), (1,)]])
def test_no_chain(variables: Sequence[Variables]) -> None:
    indexes = OrderedIndexes(1 << 16)
    atoms = [(Member(indexes.add(len(own)), own),) for own in variables]
    with pytest.raises(ValueError, match="no chain"):
        Intersect(indexes, atoms)
    with pytest.raises(ValueError, match="no bow-tie"):
        BowTie(indexes, atoms)


def test_indexes_that_do_not_serve() -> None:
    indexes = OrderedIndexes(1 << 16)
    single, pair, other = indexes.add(1), indexes.add(2), indexes.add(2)
    x, y = (Member(single, (0,)),), (Member(single, (1,)),)
    for s in ([(pair, (0, 1))], [(pair, (0, 1)), (other, (0, 1))], [(pair, (0, 1)), (single, (1, 0))], [(pair, (0, 0)), (other, (0, 0))]):
        with pytest.raises(ValueError, match="no bow-tie"):
            BowTie(indexes, [x, tuple(Member(*one) for one in s), y])
    tree = BowTie(indexes, [x, (Member(pair, (0, 1)), Member(other, (1, 0))), y])
    tree.load()
    assert tree.is_empty(tree.root) and read_all(tree.rows(tree.root)) == []
    with pytest.raises(ValueError, match="atom 1 has 2 variables, 1 are given"):
        tree.of_key(tree.root, 1, (1,))


@pytest.mark.skipif(not JIT, reason="tens of thousands need compiled kernels; the run with the JIT on has them")
def test_tens_of_thousands() -> None:
    """A bow-tie under changes: rows and deltas are counted by the groups' sizes, at a pinned version too."""
    rng = np.random.default_rng(7)
    n, values, version = 20_000, 3_000, 1
    slots = np.arange(n, dtype=np.int32)
    here = [rng.integers(0, values, n), rng.integers(0, values, (n, 2)), rng.integers(0, values, n)]
    indexes = OrderedIndexes(1 << 24)
    indexes.begin(1)
    numbers = [indexes.add(k) for k in (1, 2, 2, 1)]
    columns = [lambda a: a[0][:, None], lambda a: a[1], lambda a: a[1][:, ::-1], lambda a: a[2][:, None]]
    for number, column in zip(numbers, columns, strict=True):
        indexes.load(number, Entries(np.ascontiguousarray(column(here)), slots))
    r, by_x, by_y, t = numbers
    tree = BowTie(indexes, [(Member(r, (0,)),), (Member(by_x, (0, 1)), Member(by_y, (1, 0))), (Member(t, (1,)),)])
    tree.load()

    def counted() -> int:
        left, right = (np.bincount(here[position], minlength=values) for position in (0, 2))
        return int((left[here[1][:, 0]] * right[here[1][:, 1]]).sum())

    count = first = counted()
    root, older = tree.root, tree.rows(tree.root)
    begun = older.fill(1000).shape[1]
    for _ in range(3):
        version += 1
        indexes.begin(version)
        some = rng.choice(n, 2_000, replace=False)
        new = [rng.integers(0, values, 2_000), rng.integers(0, values, (2_000, 2)), rng.integers(0, values, 2_000)]
        changes = {}
        for number, column in zip(numbers, columns, strict=True):
            deleted, inserted = (np.ascontiguousarray(column(part)) for part in ([one[some] for one in here], new))
            changes[number] = Changes(Entries(deleted, slots[some]), Entries(inserted, slots[some]))
        gained = 0

        def sink(sign: int, rows: np.ndarray) -> bool:
            nonlocal gained
            gained += sign * rows.shape[1]
            return True

        follow_batch(tree, apply_to_indexes(indexes, changes), sink)
        indexes.reclaim(version, np.array([1], np.int64))
        for position in range(3):
            here[position][some] = new[position]
        count += gained
        assert counted() == count == drained(tree.rows(tree.root)) == drained(Elimination.rows(tree, tree.root))
    assert begun + drained(older) == first == drained(tree.rows(root))
    tree.check()


def test_rows_leave_in_order() -> None:
    given = [singles([3, 1, 2]), [(x, y) for x in (3, 1) for y in (2, 9)], singles([9, 2])]
    _, tree = made(BOW_TIE, given)
    rows: list[Row] = read_all(Elimination.rows(tree, tree.root))
    assert [given[1][row[1]] for row in rows] == sorted(given[1])
