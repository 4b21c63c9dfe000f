"""Minesweeper against its naive twins: rows, and each probe; what the papers claim of it, by counting; the kept tree; and errors."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from structures.core.kernel import JIT
from structures.index.indexes import NO_ENTRIES, Entries, OrderedIndexes
from structures.minesweeper import minesweeper
from structures.minesweeper.cds import KEPT_SIZE, PRIVATE_SIZE, Size
from structures.minesweeper.minesweeper import Member, Minesweeper, index_orders
from tests.naive.minesweeper import Miner
from tests.naive.natural_join import Entry, join
from tests.structures.batches import Changes, apply_to_indexes, drained, follow_batch
from tests.structures.index.following_machine import permuted
from tests.structures.index.machine import packed
from tests.structures.machines import drive, read_all
from tests.structures.minesweeper.machine import SMALL, MinesweeperMachine, mined, none_has_a_row

Variables = Sequence[tuple[int, ...]]
Tuples = Sequence[tuple[int, ...]]
SIZES = PRIVATE_SIZE, KEPT_SIZE
FULL = list(range(-(2**63), -(2**63) + 2)) + list(range(2**63 - 2, 2**63))


def test_against_the_twin() -> None:
    drive(MinesweeperMachine, 30 if JIT else 8, 10)


def of(variables: Variables, order: Sequence[int], given: Sequence[Tuples], sizes: tuple[Size, Size] = SIZES) -> Minesweeper:
    """Of tuples, whose slots are their numbers."""
    indexes = OrderedIndexes(1 << 24)
    indexes.begin(1)
    return mined(indexes, {}, list(enumerate(variables)), order, dict(enumerate(map(slotted, given))), sizes)


def slotted(tuples: Tuples) -> list[Entry]:
    return [(*one, slot) for slot, one in enumerate(tuples)]


def entries(miner: Minesweeper, variables: Variables, position: int, some: Sequence[Entry]) -> Entries:
    """As atom `position` wants them."""
    first = miner.members[miner.first[position]].variables
    return packed([permuted(one, [variables[position].index(v) for v in first]) for one in some], len(first))


def drawn(rng: random.Random, values: Sequence[int]) -> tuple[list[tuple[int, ...]], list[int], list[list[tuple[int, ...]]]]:
    """Atoms over up to four variables, connected or not, an order, and tuples."""
    variables = [tuple(rng.sample(range(4), rng.randrange(1, 4))) for _ in range(rng.randrange(2, 6))]
    order = sorted({v for own in variables for v in own})
    rng.shuffle(order)
    return variables, order, [[tuple(rng.choice(values) for _ in own) for _ in range(rng.randrange(1, 10))] for own in variables]


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 40))])
def test_each_probe_is_the_twins(seed: int) -> None:
    """Any order, nested or not: rows in their order, as many probes as there are of least tuples in no gap; by entries, and by a key."""
    rng = random.Random(seed)
    met = 0
    for number in range(40 if JIT else 8):
        variables, order, given = drawn(rng, FULL if number % 2 else range(4))
        miner, relations = of(variables, order, given), list(map(slotted, given))
        wanted, twin = join(relations, variables), Miner(list(zip(relations, variables, strict=True)), order)
        cursor = miner.rows(miner.root)
        rows, counted = read_all(cursor, 3), cursor.counters
        assert rows == twin.rows and set(rows) == wanted and len(rows) == len(wanted)
        assert (counted["probes"], counted["outputs"]) == (len(twin.probes), twin.outputs), (variables, order, given)
        assert cursor.dead_ends == counted["probes"] - counted["outputs"] and counted["resets"] == 0
        met += counted["probes"] > counted["outputs"] > 0
        position = rng.randrange(len(variables))
        cursor = miner.partners(miner.root, position, entries(miner, variables, position, relations[position][1::2]))
        assert sorted(read_all(cursor, 3)) == sorted(row for row in wanted if row[position] % 2)
        key = rng.choice(relations[position])
        cursor = miner.of_key(miner.root, position, entries(miner, variables, position, [key]).coordinates[0].tolist())
        assert sorted(read_all(cursor, 3)) == sorted(row for row in wanted if given[position][row[position]] == key[:-1])
        none_has_a_row(miner, {tuple(t) for t in tuples_of(variables, order, given, wanted)})
    assert met > 3 if JIT else met >= 0


def tuples_of(variables: Variables, order: Sequence[int], given: Sequence[Tuples], rows: set[Entry]) -> list[list[int]]:
    """The values of rows, level by level."""
    found = []
    for row in rows:
        of_row = {v: value for own, some, slot in zip(variables, given, row, strict=True) for v, value in zip(own, some[slot], strict=True)}
        found.append([of_row[v] for v in order])
    return found


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 20))])
@pytest.mark.parametrize("how", ["small", "short"])
def test_trees_that_are_cleared_and_calls_that_are_short(monkeypatch: pytest.MonkeyPatch, seed: int, how: str) -> None:
    """A tree with room for a few intervals forgets, and a search that is given up in the middle begins again: the rows are the same."""
    rng, resets = random.Random(seed), 0
    for _ in range(30 if JIT else 4):
        variables, order, given = drawn(rng, range(8))
        given = [some * 2 for some in given]
        if how == "short":
            monkeypatch.setattr(minesweeper.MinesweeperCursor, "_BUDGET", 70)
        miner = of(variables, order, given, (SMALL, SMALL) if how == "small" else SIZES)
        wanted = join(list(map(slotted, given)), variables)
        for _ in range(2):
            cursor = miner.rows(miner.root)
            rows = read_all(cursor, 50)
            assert set(rows) == wanted and len(rows) == len(wanted)
            resets += cursor.counters["resets"]
            assert (cursor.counters["forgotten"] > 0) == (cursor.counters["resets"] > 0)
    assert resets == 0 if how == "short" else resets > 0 or seed > 0 or not JIT


N = 20
UP = [(i,) for i in range(1, N + 1)]
SQUARE = list(product(range(1, N + 1), repeat=2))
LAYERS = [(i, N + j) for i in range(N) for j in range(N)] + [(N + i, 2 * N + j) for i in range(N) for j in range(N)]
PATH = [(0,), (0, 1), (1, 2), (2,)]
BAD_YXZ = [UP[1:], [(1, i) for (i,) in UP], [(i, 1) for (i,) in UP], UP[1:]]
BAD_XYZ = [UP, [(i, 1) for (i,) in UP], [(2, i) for (i,) in UP], UP]
CLAIMS: dict[str, tuple[Variables, tuple[int, ...], Sequence[Tuples], int, int]] = {
    "example D.3": (PATH, (0, 1, 2), [UP, SQUARE, [(2, 2), (2, 4)], [(1,), (3,)]], 0, 6),
    "example 2.4": ([(0,), (0, 1)], (0, 1), [UP, [(1, 2 * i) for (i,) in UP] + [(2, 3 * i) for (i,) in UP]], 2 * N, 2 * N + 4),
    "no order is best, first, YXZ": (PATH, (1, 0, 2), BAD_YXZ, 0, N + 2),
    "no order is best, first, XYZ": (PATH, (0, 1, 2), BAD_YXZ, 0, 2),
    "no order is best, second, XYZ": (PATH, (0, 1, 2), BAD_XYZ, 0, N + 2),
    "no order is best, second, YXZ": (PATH, (1, 0, 2), BAD_XYZ, 0, 2),
    "example D.1": ([(0,), (0, 1), (1,)], (0, 1), [UP, [(i, 2 * j) for i, j in SQUARE], [(2 * i - 1,) for (i,) in UP]], 0, N * N + N + 2),
    "no path is as long": ([(0, 1), (1, 2), (2, 3)], (0, 1, 2, 3), [LAYERS] * 3, 0, 3 * N + 4),
}  # fmt: skip


@pytest.mark.parametrize("name", CLAIMS)
def test_claims(name: str) -> None:
    """Rows and probes, of N values."""
    variables, order, given, rows, probes = CLAIMS[name]
    miner = of(variables, order, given)
    cursor = miner.rows(miner.root)
    assert len(read_all(cursor)) == rows
    assert cursor.counters["probes"] == probes and cursor.counters["outputs"] == rows
    assert cursor.counters["lookups"] <= probes * sum(map(len, variables)) + rows


def changed(miner: Minesweeper, version: int, position: int, inserted: Sequence[Entry] = (), deleted: Sequence[Entry] = ()) -> None:
    """Entries of atom `position`, which is by one index in the order of its columns, come and go."""
    miner.indexes.begin(version)
    index = miner.members[miner.first[position]].index
    batch = apply_to_indexes(miner.indexes, {index: Changes(*(packed(part, 2) if part else NO_ENTRIES for part in (deleted, inserted)))})
    follow_batch(miner, batch, None)
    miner.check()


def probes(miner: Minesweeper) -> tuple[int, int]:
    """Of a reading of all rows, how many there are and how many it probes."""
    cursor = miner.rows(miner.root)
    return len(read_all(cursor)), cursor.counters["probes"]


def test_what_is_kept_serves_later_readings() -> None:
    """R = [n], S = {(a, 2a)}, T = {1}: no row. A second reading probes nothing. What goes changes nothing; what comes harms what is known
    of its atom alone, which may be all: T(3) costs as much as a cold start."""
    n = 30
    miner = of([(0,), (0, 1), (1,)], (0, 1), [[(i,) for i in range(1, n + 1)], [(i, 2 * i) for i in range(1, n + 1)], [(1,)]])
    cold = probes(miner)
    assert cold == (0, n + 3) and probes(miner) == (0, 0) and miner.is_empty(miner.root)
    assert miner.own_bytes > 0
    older = miner.root
    changed(miner, 2, 0, deleted=[(7, 6)])
    assert miner.is_empty(miner.root) and probes(miner) == (0, 0)
    changed(miner, 3, 2, inserted=[(1, 1)])  # a second entry of a tuple that is there
    assert miner.is_empty(miner.root) and probes(miner) == (0, 0)
    changed(miner, 4, 2, inserted=[(3, 2)])
    assert miner.is_empty(miner.root) is None and probes(miner) == (0, n - 1 + 3)
    changed(miner, 5, 2, inserted=[(8, 3)])
    rows, again = probes(miner)
    assert rows == 1 and miner.is_empty(miner.root) is None
    assert read_all(miner.rows(older)) == [] and miner.is_empty(older) is None
    assert miner.rows(older).counters["probes"] == 0
    changed(miner, 6, 0, inserted=[(n + 5, n)])
    assert probes(miner)[1] <= again


def test_an_older_reading_and_one_without_the_lock_go_without() -> None:
    miner = of([(0,), (0,)], (0,), [[(i,) for i in range(50)], [(2 * i,) for i in range(50)]])
    older, cursor = miner.root, miner.rows(miner.root)
    first = cursor.fill(3).T.tolist()
    changed(miner, 2, 0, deleted=[(0, 0)])
    assert probes(miner)[0] == 24
    taken = miner._keeper.take(miner.root.lease)
    assert taken is not None and miner._keeper.take(miner.root.lease) is None
    assert probes(miner)[0] == 24
    taken.lock.release()
    assert miner._keeper.take(older.lease) is None
    clone = cursor.clone()
    rest = read_all(cursor, 4)
    assert len(first) + len(rest) == 25 and read_all(clone, 7) == rest
    assert len(read_all(miner.rows(older))) == 25


def test_a_log_that_is_full_is_dropped_with_the_tree() -> None:
    miner = of([(0,), (0,)], (0,), [[(i,) for i in range(50)], [(-1,)]])
    assert probes(miner)[0] == 0 and miner.kept() != []
    changed(miner, 2, 0, inserted=[(i, i) for i in range(100, 1100)])
    assert miner.kept() != [] and probes(miner) == (0, 1)
    changed(miner, 3, 0, inserted=[(i, i) for i in range(2000, 2100)])
    assert miner.kept() == [] and probes(miner)[0] == 0 and miner.kept() != []


def test_a_clone_shares_what_another_found() -> None:
    n = 40
    variables, given = [(0,), (0, 1), (1,)], [[(i,) for i in range(n)], [(i, 2 * j) for i in range(n) for j in range(n)], [(1,), (4,)]]
    miner = of(variables, (0, 1), given)
    cursor = miner.partners(miner.root, 2, entries(miner, variables, 2, [(4, 1)]))
    early = cursor.clone()
    assert len(cursor.fill(5).T) == 5
    with cursor._own.tree.lock:
        assert len(early.clone().fill(7).T) == 7, "without it"
    rows = read_all(early, 11)
    assert len(rows) == n and rows[5:] == read_all(cursor, 3)


def test_clones_that_are_at_different_items() -> None:
    """What is found below one item is not true below another."""
    n = 30
    variables, given = [(0,), (0, 1), (1,)], [[(i,) for i in range(n)], [(i, i % 3) for i in range(n)], [(0,), (1,), (2,)]]
    miner = of(variables, (0, 1), given)
    items = entries(miner, variables, 2, [(k, k) for k in range(3)])
    wanted = sorted(read_all(miner.partners(miner.root, 2, items)))
    assert len(wanted) == n
    one = miner.partners(miner.root, 2, items)
    begun = [tuple(row) for row in one.fill(4).T.tolist()]
    other = one.clone()
    ahead = [tuple(row) for row in other.fill(1).T.tolist()]
    rows: tuple[list[Any], list[Any]] = ([*begun], [*begun, *ahead])
    for _ in range(3 * n):  # in turns, a row each, the one far ahead of the other
        for cursor, mine, count in ((one, rows[0], 1), (other, rows[1], 3)):
            for _ in range(count):
                if not cursor.done:
                    mine += [tuple(row) for row in cursor.fill(1).T.tolist()]
    assert sorted(rows[0]) == sorted(rows[1]) == wanted


@pytest.mark.parametrize(
    ("variables", "order"),
    [
        ([(0,)], (0,)),
        ([(0,)] * 9, (0,)),
        ([(0, 1), (1, 2)], (0, 1)),
        ([(0, 1), (1, 2)], (0, 1, 2, 3)),
        ([(v,) for v in range(8)] + [(8, 0)], tuple(range(9))),
    ],
)
def test_no_order(variables: Variables, order: tuple[int, ...]) -> None:
    indexes = OrderedIndexes(1 << 16)
    atoms = [(Member(indexes.add(len(own)), own),) for own in variables]
    with pytest.raises(ValueError, match="is no order of 1 to 8 variables of 2 to 8 atoms"):
        Minesweeper(indexes, atoms, order)


def test_indexes_that_do_not_serve() -> None:
    indexes = OrderedIndexes(1 << 16)
    pair, single = indexes.add(2), indexes.add(1)
    with pytest.raises(ValueError, match=r"atom 0 has no index by the variables \[\] and then \[1, 0\]"):
        Minesweeper(indexes, [(Member(pair, (0, 1)),), (Member(single, (1,)),)], (1, 0))
    with pytest.raises(ValueError, match=r"atom 0 has no index by the variables \[1\] and then \[0\]"):
        Minesweeper(indexes, [(Member(pair, (0, 1)),), (Member(single, (1,)),)], (0, 1))
    with pytest.raises(ValueError, match=r"indexes of \[2\] coordinates"):
        Minesweeper(indexes, [(Member(pair, (1,)),), (Member(single, (1,)),)], (1,))
    miner = Minesweeper(indexes, [(Member(pair, (1, 0)),), (Member(single, (1,)),)], (1, 0))
    with pytest.raises(ValueError, match="atom 0 has 2 variables, 1 are given"):
        miner.of_key(miner.root, 0, (1,))
    assert miner.is_empty(miner.root)
    # of S(0, 1, 2) with R(2), T(0, 2): in the order; 2 first, which serves for both
    assert index_orders([(0, 1, 2), (2,), (0, 2)], (0, 1, 2)) == [[(0, 1, 2), (2, 0, 1)], [(2,)], [(0, 2), (2, 0)]]


@pytest.mark.skipif(not JIT, reason="tens of thousands need compiled kernels; the run with the JIT on has them")
def test_tens_of_thousands() -> None:
    """A path of three edges between few chosen ends: probes follow these, not the edges; and many paths, by a tree that grows."""
    rng = np.random.default_rng(7)
    counts = []
    for n in (3_000, 30_000):
        edges = np.unique(rng.integers(0, n // 5, (n, 2)), axis=0)
        ends = [rng.choice(n // 5, 10, replace=False)[:, None] for _ in range(4)]
        variables = [(0, 1), (1, 2), (2, 3), (0,), (1,), (2,), (3,)]
        miner = loaded(variables, (0, 1, 2, 3), [edges] * 3 + ends)
        cursor = miner.rows(miner.root)
        drained(cursor)
        counts.append(cursor.counters["probes"])
    assert max(counts) < 200
    miner = loaded([(0, 1), (1, 2), (2, 3)], (0, 1, 2, 3), [edges] * 2 + [edges[:9]])
    cursor = miner.rows(miner.root)
    into, out = np.bincount(edges[:, 1], minlength=n), np.bincount(edges[:, 0], minlength=n)
    of_middle = {int(b): 0 for b in edges[:, 0]}
    for b, c in edges.tolist():
        of_middle[b] += int((edges[:9, 0] == c).sum())
    assert drained(cursor) == sum(int(into[b]) * rows for b, rows in of_middle.items())
    assert cursor.counters["resets"] == 0 and out.sum() == len(edges)
    miner.check()
    small = loaded([(0, 1), (1, 2), (2, 3)], (0, 1, 2, 3), [edges] * 2 + [edges[:9]], (Size(400, 400), Size(400, 400)))
    again = small.rows(small.root)
    assert drained(again) == cursor.counters["outputs"] and again.counters["resets"] > 0


def loaded(variables: Variables, order: tuple[int, ...], given: Sequence[np.ndarray], sizes: tuple[Size, Size] = SIZES) -> Minesweeper:
    indexes = OrderedIndexes(1 << 24)
    indexes.begin(1)
    atoms = []
    for own, orders, some in zip(variables, index_orders(variables, order), given, strict=True):
        atoms.append(tuple(Member(indexes.add(len(own)), one) for one in orders))
        for member in atoms[-1]:
            columns = np.ascontiguousarray(some[:, [own.index(v) for v in member.variables]].astype(np.int64))
            indexes.load(member.index, Entries(columns, np.arange(len(some), dtype=np.int32)))
    return Minesweeper(indexes, atoms, order, *sizes)
