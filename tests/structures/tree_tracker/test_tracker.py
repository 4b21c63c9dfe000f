"""TreeTracker against its naive twins: rows, look-ups and removals one by one; what the paper claims of it, by counting; and errors."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from structures.core.kernel import JIT
from structures.index.indexes import NO_ENTRIES, Entries, OrderedIndexes
from structures.tree_tracker import no_goods
from structures.tree_tracker.shape import is_join_tree
from structures.tree_tracker.tracker import Member, TreeTracker, index_orders
from tests.naive.natural_join import Entry, join
from tests.naive.tree_tracker import Tracker
from tests.structures.batches import Changes, apply_steps, apply_to_indexes, drained, follow_batch, follow_steps
from tests.structures.index.following_machine import permuted
from tests.structures.index.machine import packed
from tests.structures.machines import drive, read_all
from tests.structures.tree_tracker.machine import TrackerMachine, tracker_of

Variables = Sequence[tuple[int, ...]]
Edges = Sequence[tuple[int, int]]


def test_against_the_twin() -> None:
    drive(TrackerMachine, 60 if JIT else 12, 12)


def tracked(variables: Variables, edges: Edges, given: Sequence[Sequence[tuple[int, ...]]]) -> tuple[OrderedIndexes, TreeTracker]:
    """Of tuples, whose slots are their numbers."""
    indexes = OrderedIndexes(1 << 24)
    indexes.begin(1)
    return indexes, tracker_of(indexes, {}, list(enumerate(variables)), edges, dict(enumerate(map(slotted, given))))


def slotted(tuples: Sequence[tuple[int, ...]]) -> list[Entry]:
    return [(*one, slot) for slot, one in enumerate(tuples)]


def preorder(tree: TreeTracker, edges: Edges, start: int) -> list[tuple[int, tuple[int, ...], int]]:
    """As the twin wants it: smaller atoms first, each by the index that the walk from `start` reads."""
    found: list[tuple[int, tuple[int, ...], int]] = []
    counts = tree.root.counts

    def visit(atom: int, above: int, before: int) -> None:
        members = [one.variables for one, a in zip(tree.shape.members, tree.shape.atom_of, strict=True) if a == atom]
        shared = set(members[0]) & set(found[above][1]) if above >= 0 else set()
        found.append((atom, next(one for one in members if set(one[: len(shared)]) == shared), above))
        here = len(found) - 1
        around = {y if x == atom else x for x, y in edges if atom in (x, y)} - {before}
        for child in sorted(around, key=lambda a: (counts[a], a)):
            visit(child, here, atom)

    visit(start, -1, -1)
    return found


def some_tree(rng: random.Random) -> tuple[Variables, Edges]:
    """An acyclic join: each atom shares some variables of one before it, and may have more."""
    variables: list[tuple[int, ...]] = [tuple(rng.sample(range(3), rng.randrange(1, 4)))]
    edges, fresh = [], 3
    for atom in range(1, rng.randrange(2, 7)):
        parent = rng.randrange(atom)
        shared = rng.sample(variables[parent], rng.randrange(1, len(variables[parent]) + 1))
        own = [*shared, *range(fresh, fresh + rng.randrange(2))]
        fresh += 1
        rng.shuffle(own)
        variables.append(tuple(own))
        edges.append((parent, atom))
    return variables, edges


@pytest.mark.parametrize("seed", range(3))
def test_each_look_up_is_the_twins(seed: int) -> None:
    """From each atom: rows in their order, look-ups and removals; TT-gamma has the same rows, and nothing fails after its first pass."""
    rng = random.Random(seed)
    met = 0
    for _ in range(120 if JIT else 25):
        variables, edges = some_tree(rng)
        assert is_join_tree(variables, edges)
        given = [[tuple(rng.randrange(3) for _ in own) for _ in range(rng.randrange(10))] for own in variables]
        _, tree = tracked(variables, edges, given)
        relations = list(map(slotted, given))
        for start in range(len(variables)):
            atoms = preorder(tree, edges, start)
            ordered: list[Any] = [None] * len(variables)
            for position, own, _ in atoms:
                ordered[position] = sorted(permuted(one, tuple(variables[position].index(v) for v in own)) for one in relations[position])
            twin, cursor = Tracker(ordered, atoms), tree.rows(tree.root, start)
            rows = read_all(cursor, 3)
            counted = cursor.counters
            assert rows == twin.rows and set(rows) == join(relations, variables)
            assert (counted["lookups"], counted["removed"]) == (twin.look_ups, len(twin.removed))
            assert counted["lookups"] <= (len(variables) - 1) * (len(rows) + counted["removed"])
            assert counted["removed"] <= sum(map(len, given)) and counted["forgotten"] == 0
            met += counted["removed"] * len(rows) > 0
            compare_with_gamma(tree, start, rows, counted["removed"])
    assert met > 20


def compare_with_gamma(tree: TreeTracker, start: int, rows: list[Entry], removed: int) -> None:
    """TT-gamma's pass looks up each entry for its children at most, and removes what TTJ does and perhaps more (Corollary 5.2); then a row
    costs t - 1 look-ups at most, and none fails."""
    cursor = tree.rows(tree.root, start, reduced=True)
    found: list[Entry] = []
    after: dict[str, int] | None = None
    while not cursor.done:
        chunk = cursor.fill(1).T.tolist()
        if chunk and after is None:
            after = cursor.counters
        found += map(tuple, chunk)
    assert found == rows
    last, t = cursor.counters, tree.shape.t
    assert last["removed"] >= removed
    if after is not None:
        assert last["removed"] == after["removed"] and last["lookups"] - after["lookups"] <= (t - 1) * (len(rows) - 1)
    assert last["lookups"] <= (t - 1) * (sum(tree.root.counts) + len(rows))


CLAIMS: dict[str, tuple[Variables, Edges, Sequence[Sequence[tuple[int, ...]]], int, tuple[int, int, int]]] = {
    # G, P, C, D: (5, 1) has been in a row when (5, 2) fails; Algorithms 5.2 to 5.4 as printed then lose the row of (2, 5)
    "an iteration that has ended has not failed": (
        [(0, 1), (1,), (1, 2), (2,)], [(0, 1), (1, 2), (2, 3)], [[(1, 5), (2, 5)], [(5,)], [(5, 1), (5, 2)], [(1,)]], 0, (2, 7, 1),
    ),
    # T(x), S(x, y, z), B(z), R(y, z); green 7, red 9
    "example 3": (
        [(0,), (0, 1, 2), (2,), (1, 2)], [(0, 1), (1, 2), (1, 3)], [[(7,), (9,)], [(9, 1, 2), (9, 3, 2)], [(2,)], [(3, 2)]], 0, (1, 6, 2),
    ),
    "duplicates are removed entry by entry": (
        [(0,), (0, 1), (1,)], [(0, 1), (1, 2)], [[(i % 10,) for i in range(100)], [(i % 10, i) for i in range(100)], [(0,)]], 0,
        (10, 209, 189),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CLAIMS)
def test_claims(name: str) -> None:
    """Rows, look-ups, removed entries."""
    variables, edges, given, start, wanted = CLAIMS[name]
    _, tree = tracked(variables, edges, given)
    cursor = tree.rows(tree.root, start)
    rows = read_all(cursor)
    counted = cursor.counters
    assert (len(rows), counted["lookups"], counted["removed"]) == wanted and cursor.dead_ends == counted["removed"]
    assert set(rows) == join(list(map(slotted, given)), variables)


@pytest.mark.parametrize("n", [1, 30, 300])
def test_a_dangling_group_is_looked_at_once(n: int) -> None:
    """n rows want one group of n, none of which has a partner: nested loops, by whatever index, look up n² times, TreeTracker 2n times."""
    _, tree = tracked([(0,), (0, 1), (1,)], [(0, 1), (1, 2)], [[(0,)] * n, [(0, i) for i in range(n)], [(-1,)] * n])
    cursor = tree.rows(tree.root, 0)
    assert read_all(cursor) == []
    assert cursor.counters == {"lookups": 2 * n, "removed": 2 * n, "no_goods": n, "forgotten": 0}
    assert cursor.steps <= 8 * n + 8


def test_no_goods_are_but_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many none is kept: the rows are the same, and what was forgotten is looked up again."""
    n = 60
    given = [[(i % 2,) for i in range(n)], [(i % 2, i) for i in range(n)], [(i,) for i in range(0, n, 7)]]
    counted, rows = [], []
    for most in (no_goods.MOST, 8):
        _, tree = tracked([(0,), (0, 1), (1,)], [(0, 1), (1, 2)], given)
        monkeypatch.setattr("structures.tree_tracker.no_goods._FIRST", 4)
        monkeypatch.setattr("structures.tree_tracker.tracker.NoGoods", lambda most=most: no_goods.NoGoods(most))
        cursor = tree.rows(tree.root, 0)
        rows.append(read_all(cursor, 5))
        counted.append(cursor.counters)
    assert rows[0] == rows[1] != []
    assert counted[0]["removed"] == counted[0]["no_goods"] == n - 9 and counted[0]["forgotten"] == 0
    assert counted[0]["lookups"] == n + n - 9 + len(rows[0]), "of R in S, of S in T once in vain, and once a row"
    assert counted[1]["no_goods"] <= 8 and counted[1]["forgotten"] > n and counted[1]["lookups"] > 10 * n


def fans(n: int) -> TreeTracker:
    return tracked([(0,), (0, 1), (1,)], [(0, 1), (1, 2)], [[(0,)] * n, [(0, i) for i in range(n)], [(n - 1,)] * n])[1]


def test_a_clone_knows_what_the_other_found() -> None:
    tree = fans(40)
    cursor = tree.rows(tree.root, 0)
    early, first = cursor.clone(), cursor.fill(1)
    assert first.T.tolist() == [[0, 39, 0]]
    removed = cursor.counters["removed"]
    assert removed == 39 and early.counters["removed"] == 0
    rows = read_all(early, 7)
    assert len(rows) == 40 * 40 and early.counters == {"lookups": 80, "removed": 0, "no_goods": 0, "forgotten": 0}
    assert read_all(cursor, 11) == rows[1:]


def test_a_cursor_goes_without_what_another_holds() -> None:
    """While a clone reads, its table is out of reach; the rows are the same."""
    tree = fans(40)
    cursor = tree.rows(tree.root, 0)
    other = cursor.clone()
    cursor.fill(1)
    with cursor._no_goods.lock:
        assert other.fill(1).T.tolist() == [[0, 39, 0]] and other.counters["removed"] == 39
    assert sorted(read_all(other, 9)) == sorted(read_all(cursor, 9))


def test_values_at_the_ends_and_empty_atoms() -> None:
    low, high = -(2**63), 2**63 - 1
    given = [[(low, high), (high, low), (0, 0)], [(high, low), (low, high)]]
    _, tree = tracked([(0, 1), (1, 0)], [(0, 1)], given)
    assert sorted(read_all(tree.rows(tree.root))) == [(0, 0), (1, 1)]
    _, tree = tracked([(0, 1), (1, 0)], [(0, 1)], [given[0], []])
    assert tree.is_empty(tree.root) and read_all(tree.rows(tree.root)) == [] == read_all(tree.rows(tree.root, 0, reduced=True))


def test_the_smallest_atom_begins() -> None:
    """Of a thousand entries that no other atom wants none is looked at."""
    _, tree = tracked([(0,), (0, 1), (1,)], [(0, 1), (1, 2)], [[(i,) for i in range(1000)], [(i, i) for i in range(1000)], [(7,)]])
    cursor = tree.rows(tree.root)
    assert read_all(cursor) == [(7, 7, 0)] and cursor.counters["lookups"] == 2 and cursor.steps < 10


@pytest.mark.parametrize(
    ("variables", "edges"),
    [
        ([(0,)], []),
        ([(0,)] * 9, [(0, i) for i in range(1, 9)]),
        ([(0, 1), (1, 2), (0, 2)], [(0, 1), (1, 2)]),  # a triangle
        ([(0,), (1,)], [(0, 1)]),  # nothing in common
        ([(0,), (0,), (0,)], [(0, 1), (1, 0)]),
        ([(0,), (0, 1), (0,)], [(0, 1)]),
    ],
)
def test_no_join_tree(variables: Variables, edges: Edges) -> None:
    indexes = OrderedIndexes(1 << 16)
    atoms = [(Member(indexes.add(len(own)), own),) for own in variables]
    with pytest.raises(ValueError, match="no join tree"):
        TreeTracker(indexes, atoms, edges)


def test_indexes_that_do_not_serve() -> None:
    indexes = OrderedIndexes(1 << 16)
    pair, single = indexes.add(2), indexes.add(1)
    with pytest.raises(ValueError, match=r"begins with the variables \[1\]"):
        TreeTracker(indexes, [(Member(pair, (0, 1)),), (Member(single, (1,)),)], [(0, 1)])
    with pytest.raises(ValueError, match=r"indexes of \[2\] coordinates"):
        TreeTracker(indexes, [(Member(pair, (1,)),), (Member(single, (1,)),)], [(0, 1)])
    tree = TreeTracker(indexes, [(Member(pair, (1, 0)),), (Member(single, (1,)),)], [(0, 1)])
    with pytest.raises(ValueError, match="atom 0 has 2 variables, 1 are given"):
        tree.of_key(tree.root, 0, (1,))
    orders = index_orders([(0, 1, 2), (2, 1), (2, 5), (5,)], [(0, 1), (0, 2), (2, 3)])
    assert orders == [[(1, 2, 0), (2, 1, 0)], [(2, 1)], [(2, 5), (5, 2)], [(5,)]]


def test_a_sink_that_wants_no_more() -> None:
    n = 60
    indexes, tree = tracked([(0,), (0,)], [(0, 1)], [[(0,)] * n] * 2)
    indexes.begin(2)
    same = packed(slotted([(0,)] * n), 1)
    batch = apply_to_indexes(indexes, {tree.shape.members[0].index: Changes(same, same)})
    emitted: list[tuple[int, int]] = []

    def sink(sign: int, slots: np.ndarray) -> bool:
        emitted.append((sign, slots.shape[1]))
        return False

    follow_batch(tree, batch, sink)
    assert emitted == [(-1, n * n)], "less than a chunk"
    tree.check()
    steps = tree.update_steps
    assert steps > n * n and len(read_all(tree.rows(tree.root))) == n * n
    indexes.begin(3)
    follow_batch(tree, apply_to_indexes(indexes, {tree.shape.members[0].index: Changes(same, NO_ENTRIES)}), None)
    assert tree.update_steps == steps and tree.is_empty(tree.root)


def test_a_delta_beyond_the_limit_is_given_up_and_the_rest_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("structures.tree_tracker.tracker.CHUNK", 1 << 10)
    n = 60
    indexes, tree = tracked([(0,)] * 3, [(0, 1), (1, 2)], [[(0,)] * n, [(0,)] * n, [(1,)]])
    last = tree.shape.members[tree.shape.first[2]].index

    def followed(signs: list[int], entries: list[Entry], limit: int | None) -> dict[int, np.ndarray]:
        indexes.begin(indexes._version + 1)
        run = apply_steps(indexes, np.full(len(signs), last), np.array(signs, np.int8), packed(entries, 1))
        found = follow_steps(tree, run, limit)
        tree.check()
        return found

    assert followed([1, -1, 1], [(0, 1), (1, 0), (0, 2)], 3_000) == {}
    found = followed([-1, 1], [(0, 1), (0, 1)], n * n)
    assert [rows.shape[1] for _, rows in sorted(found.items())] == [n * n] * 2
    assert len(set(map(tuple, found[1].T.tolist()))) == n * n
    before = tree.update_steps
    assert followed([-1], [(0, 1)], None) == {} and tree.update_steps == before


def test_a_run_notes_what_dangles_and_forgets_it_with_each_change() -> None:
    """A(x) is_inserted: of B all n rows want the group of C whose n rows D lacks, which are looked up once, more than the first table
    holds. One of them has a partner as D(7) comes, and all n rows of B with it."""
    n = 600 if JIT else 300
    given = [[], [(0, 0)] * n, [(0, i) for i in range(n)], [(-1,)]]
    indexes, tree = tracked([(0,), (0, 1), (1, 2), (2,)], [(0, 1), (1, 2), (2, 3)], given)
    a, d = (tree.shape.members[tree.shape.first[atom]].index for atom in (0, 3))
    indexes.begin(2)
    run = apply_steps(indexes, np.array([a, d, a, a]), np.array([1, 1, -1, 1], np.int8), packed([(0, 5), (7, 6), (0, 5), (1, 5)], 1))
    found = follow_steps(tree, run, 10**6)
    assert {step: rows.shape[1] for step, rows in found.items()} == {1: n, 2: n}
    for rows in found.values():
        assert set(map(tuple, rows[[0, 2, 3]].T.tolist())) == {(5, 7, 6)}
        assert sorted(rows[1].tolist()) == [*range(n)]
    assert tree.update_steps < 40 * n
    tree.check()


def test_tables_are_counted_while_readings_last() -> None:
    tree = fans(2000)
    assert tree.own_bytes == 0
    cursor = tree.rows(tree.root, 0)
    small = tree.own_bytes
    cursor.fill(1)
    other, large = cursor.clone(), tree.own_bytes
    assert 0 < small < large == other._no_goods.table.nbytes
    del cursor
    assert tree.own_bytes == large
    del other
    assert tree.own_bytes == 0


@pytest.mark.skipif(not JIT, reason="tens of thousands need compiled kernels; the run with the JIT on has them")
def test_tens_of_thousands() -> None:
    """A chain of three: rows and deltas are counted by the groups' sizes, at a pinned version too."""
    rng = np.random.default_rng(7)
    n, values, version = 30_000, 10_000, 1
    slots = np.arange(n, dtype=np.int32)
    here = [rng.integers(0, values, (n, 2)) for _ in range(3)]  # R(a, b), S(b, c), T(c, d)
    indexes = OrderedIndexes(1 << 24)
    indexes.begin(1)
    variables, edges = [(0, 1), (1, 2), (2, 3)], [(0, 1), (1, 2)]
    atoms, columns = [], []
    for position, (own, orders) in enumerate(zip(variables, index_orders(variables, edges), strict=True)):
        atoms.append(tuple(Member(indexes.add(2), order) for order in orders))
        columns.append([[own.index(v) for v in order] for order in orders])
        for member, by in zip(atoms[-1], columns[-1], strict=True):
            indexes.load(member.index, Entries(np.ascontiguousarray(here[position][:, by]), slots))
    tree = TreeTracker(indexes, atoms, edges)

    def counted() -> int:
        left, right = np.bincount(here[0][:, 1], minlength=values), np.bincount(here[2][:, 0], minlength=values)
        return int((left[here[1][:, 0]] * right[here[1][:, 1]]).sum())

    count = first = counted()
    pinned, root = np.array([1], np.int64), tree.root
    older = tree.rows(root)
    begun = older.fill(1000).shape[1]
    for _ in range(4):
        version += 1
        indexes.begin(version)
        changes = {}
        for position, atom in enumerate(atoms):
            some = rng.choice(n, 3_000, replace=False)
            new = rng.integers(0, values, (3_000, 2))
            for member, by in zip(atom, columns[position], strict=True):
                old = np.ascontiguousarray(here[position][some][:, by])
                changes[member.index] = Changes(Entries(old, slots[some]), Entries(np.ascontiguousarray(new[:, by]), slots[some]))
            here[position] = here[position].copy()
            here[position][some] = new
        gained: list[int] = []

        def sink(sign: int, rows: np.ndarray, gained: list[int] = gained) -> bool:
            if sign > 0:
                r, s, t = (here[position][rows[position]] for position in range(3))
                assert (r[:, 1] == s[:, 0]).all() and (s[:, 1] == t[:, 0]).all()
            gained.append(sign * rows.shape[1])
            return True

        follow_batch(tree, apply_to_indexes(indexes, changes), sink)
        indexes.reclaim(version, pinned)
        count += sum(gained)
        cursor = tree.rows(tree.root)
        assert count == counted() == drained(cursor)
        emitted = cursor.counters
        assert emitted["lookups"] <= 2 * (count + emitted["removed"]) and emitted["removed"] <= 3 * n
    assert begun + drained(older) == first and begun > 0
    tree.check()
    indexes.check([(2, one) for one in root.roots])
