"""Quadtrees and qdags against their naive twin, the paper's examples, and what they promise about steps and memory, by counting."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from structures.core.kernel import JIT
from structures.qdag import qdag
from structures.qdag.qdag import And, Atom, extend
from structures.qdag.run import STEP_DELETE, STEP_INSERT
from structures.quadtree.check import entries_of
from structures.quadtree.compact import HEADER
from structures.quadtree.layout import CODE_BITS, COUNT, LEAF, TREE, TREE_WORDS
from structures.quadtree.trees import QuadTrees, in_order
from tests.naive.natural_join import Entry, entries
from tests.structures.machines import Row, drive, read_all, transposed
from tests.structures.qdag.machine import SHAPES, QdagMachine, Shape, Trees

NO_PINS = np.empty(0, np.int64)
TRIANGLE = SHAPES[1]
FIGURE_1 = [(4, 3), (7, 2), (5, 6), (6, 4), (3, 12), (6, 12), (6, 13), (7, 12), (7, 13), (8, 5), (14, 1), (15, 0)]
FIGURE_2 = [(3, 4), (6, 4), (6, 5), (7, 4), (7, 5)]


def test_against_the_twin() -> None:
    drive(QdagMachine, 60 if JIT else 8, 12)


def with_slots(points: list[tuple[int, ...]]) -> list[Entry]:
    return [(*point, 100 + i) for i, point in enumerate(points)]


def test_figure_1() -> None:
    """R(A, B) in a grid of 16 x 16; the point (3, 12) lies at 01, 01, 10, 10."""
    of = Trees(Shape((2,), ((0, (0, 1)),)))
    of.load(1, 0, with_slots(FIGURE_1))
    assert of.trees.roots[0].bits == 4 and of.trees.roots[0].count == len(FIGURE_1)
    of.trees.check(of.trees.roots)
    assert sorted(entries_of(of.trees.arena, of.trees.forms, of.trees.roots[0], (2, 0), {})) == sorted(with_slots(FIGURE_1))
    assert read_all(of.join.rows([of.trees.roots], [3, 12])) == [(104,)]
    assert read_all(of.join.rows([of.trees.roots], [12, 3])) == []


def test_figure_2() -> None:
    """S*(A, B, C) = All(A) x S(B, C) has M = 0 1 2 3 0 1 2 3, and the point (4, 3, 4) among its own."""
    assert extend([1, 2], 3) == [0, 1, 2, 3, 0, 1, 2, 3]
    of = Trees(Shape((1, 2), ((0, (0,)), (1, (1, 2)))))
    of.load(1, 0, [(code, code) for code in range(8)])
    of.load(1, 1, with_slots(FIGURE_2))
    rows = read_all(of.join.rows([of.trees.roots] * 2))
    assert sorted(rows) == sorted((a, slot) for a in range(8) for *_, slot in with_slots(FIGURE_2))
    assert (4, 100) in rows


def test_extend() -> None:
    """The example of Definition 3.2: quadrant 12 = 1100 of (A, B, C, D) is quadrant 6 = 110 of (A, B, D), and so is 14."""
    mapping = extend([0, 1, 3], 4)
    assert mapping[12] == mapping[14] == 6
    assert extend([0, 1, 2], 3) == list(range(8))
    assert extend([1, 0], 2) == [0, 2, 1, 3]  # "mappings to represent any reordering of the attributes"


def complete(input: int) -> list[Entry]:
    return with_slots([(a, b) for a in range(input) for b in range(input)])


@pytest.mark.parametrize("side", [1, 2, 7, 8])
def test_the_triangle_at_its_agm_bound(side: int) -> None:
    """Three relations of n tuples with n^(3/2) rows: no joint node is a dead end."""
    of = Trees(TRIANGLE)
    for relation in range(3):
        of.load(1, relation, complete(side))
    cursor = of.join.rows([of.trees.roots] * 3)
    rows = read_all(cursor)
    assert len(rows) == len(set(rows)) == side**3 and cursor.dead_ends == 0


@pytest.mark.parametrize("atoms", list(permutations([(0, (0,)), (1, (0, 1)), (2, (1,))])))
def test_atoms_in_any_order_cost_the_same(atoms: tuple[tuple[int, tuple[int, ...]], ...]) -> None:
    """R(X), S(X, Y), T(Y): no entry of R is tried with one of T that no entry of S brings together."""
    of = Trees(Shape((1, 2, 1), atoms))
    for relation, arity in enumerate((1, 2, 1)):
        of.load(1, relation, with_slots([(code,) * arity for code in range(LEAF)]))
    cursor = of.join.rows([of.trees.roots] * 3)
    assert len(read_all(cursor)) == LEAF and cursor.steps <= 3 * LEAF + 1


@pytest.mark.parametrize("n", [50, 200] if JIT else [50])
def test_a_hub_costs_no_pairwise_join(n: int) -> None:
    """Each pair of these relations has n^2 rows, all three O(n): steps grow as the bound n^(3/2) at most."""
    star = with_slots([(0, i) for i in range(n)] + [(i, 0) for i in range(1, n)])
    of = Trees(TRIANGLE)
    for relation in range(3):
        of.load(1, relation, star)
    cursor = of.join.rows([of.trees.roots] * 3)
    assert len(read_all(cursor)) == 3 * n - 2
    assert cursor.steps < 64 * n * n**0.5


def test_the_whole_is_read_entry_by_entry_of_the_smallest_atom() -> None:
    """Steps go by its entries where these have few partners; a cursor goes on from between any two of them, and so does its clone."""
    rng = np.random.default_rng(8)
    of, n = Trees(TRIANGLE), 20 * LEAF
    relations = [with_slots(np.unique(rng.integers(0, n // 2, (size, 2)), axis=0).tolist()) for size in (2 * n, n, 3 * n)]
    for relation, given in enumerate(relations):
        of.load(1, relation, given)
    cursor = of.join.rows([of.trees.roots] * 3)
    found = [cursor.fill(1 + i % 3) for i in range(5)]
    other = cursor.clone()
    found.append(np.array(read_all(cursor, 7)).T)
    rows = list(zip(*np.hstack(found).tolist(), strict=True))
    assert len(rows) == len(set(rows)) and set(rows) == of.wanted([tuple(map(frozenset, relations))] * 3)
    assert read_all(other, 3) == rows[-len(found[-1].T) :]
    assert len(relations[1]) < cursor.steps < 20 * n
    assert all(c.done and c.fill(1).shape[1] == 0 for c in (cursor, other))


@pytest.mark.parametrize("changed", [False, True])
def test_rows_of_one_tuple_are_no_search_each(changed: bool) -> None:
    """R has many rows of one tuple; S and T have many tuples that go with it, of which few go with each other."""
    of, n = Trees(TRIANGLE), 5 * LEAF
    r = [(i, i) for i in range(LEAF)] + [(3, 3)] * n + [(2, 2)] * n
    s = [(3, 2 * i) for i in range(n)] + [(3, 2 * n + 1), (2, 1)]
    t = [(3, 2 * i + 1) for i in range(n + 1)] + [(2, 1)] * 2
    relations = [with_slots(one) for one in (r, [*s, *((9, i) for i in range(3 * n))], [*t, *((9, i) for i in range(3 * n))])]
    for relation, given in enumerate(relations):
        of.load(1, relation, given[: len(given) // 2] if changed else given)
        if changed:
            of.change(2, relation, given[len(given) // 2 :], True)
    cursor = of.join.rows([of.trees.roots] * 3)
    rows = read_all(cursor, 7)
    assert len(rows) == len(set(rows)) and set(rows) == of.wanted([tuple(map(frozenset, relations))] * 3)
    assert len(rows) >= 3 * n and cursor.steps < 4 * len(rows)


@pytest.mark.parametrize("ends", [[(1, 0)], [(1, 0), (0, 0)]])
def test_a_call_ends_after_its_budget_within_leaves_too(ends: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    """A path whose leaves join in LEAF^3 ways, few or none of which its last atom closes to a cycle."""
    of = Trees(Shape((2, 2), ((0, (0, 1)), (0, (1, 2)), (0, (2, 3)), (1, (3, 0)))))
    of.load(1, 0, [(0, 0, slot) for slot in range(LEAF)])
    of.load(1, 1, with_slots(ends))
    monkeypatch.setattr(qdag.QdagCursor, "_BUDGET", LEAF)
    cursor, rows, most = of.join.rows([of.trees.roots] * 4, [-1] * 4), list[Row](), 0
    while not cursor.done:
        before = cursor.steps
        rows += transposed(cursor.fill(LEAF**3))
        most = max(most, cursor.steps - before)
    assert len(rows) == len(set(rows)) == LEAF**3 * (len(ends) - 1)
    assert most < 4 * LEAF and cursor.steps > LEAF**3


@pytest.mark.parametrize("arity", [1, 2, 3, 4])
def test_arities_and_many_rows_of_a_tuple(arity: int) -> None:
    of = Trees(Shape((arity,), ((0, tuple(range(arity))),)), least=10**6)
    alike = [(5,) * arity + (slot,) for slot in range(3 * LEAF + 1)]
    others = [(i,) * arity + (1000 + i,) for i in range(2 * LEAF)]
    of.change(1, 0, alike + others, True)
    of.trees.check(of.trees.roots)
    rows = of.join.rows([of.trees.roots], [5] * arity)
    assert sorted(read_all(rows, 3)) == [(slot,) for *_, slot in alike] + [(1005,)] * (5 < 2 * LEAF)
    of.change(2, 0, alike[1:] + others, False)
    of.trees.reclaim(2, NO_PINS)
    of.trees.check(of.trees.roots)
    assert read_all(of.join.rows([of.trees.roots])) == [(0,)]
    of.change(3, 0, alike[:1], False)
    of.trees.reclaim(3, NO_PINS)
    assert of.trees.live_bytes == of.trees.retired_bytes == 0 and of.trees.roots[0] == (0, 0, 0, 0)


@pytest.mark.parametrize("arity", [1, 2, 3, 4])
@pytest.mark.parametrize("spread", [1, 50])
def test_bits_of_the_compact_form(arity: int, spread: int) -> None:
    """At most 1.3 times the paper's (k + 2) log l bits a tuple, whether the points are dense or far apart; tiny leaves take more."""
    rng = np.random.default_rng(7)
    n = 4_000 if JIT else 600
    input = max(2, int(spread * n ** (1 / arity)))
    points = np.unique(rng.integers(0, input, (n, arity)), axis=0)
    loaded = np.column_stack((points, np.arange(len(points)))).astype(np.int32)
    for first in range(arity):
        trees = QuadTrees([(arity, first)], 1 << 22, 1)
        trees.bulk_load(1, 0, loaded)
        assert sorted(entries_of(trees.arena, trees.forms, trees.roots[0], (arity, first), {})) == sorted(map(tuple, loaded.tolist()))
        header = 64 * HEADER / len(points)
        assert 0 < trees.bits_a_tuple(0) - header < 1.3 * (arity + 2) * trees.roots[0].bits or LEAF < 16 or not JIT  # few points


@pytest.mark.parametrize("arity", [1, 2, 3, 4])
@pytest.mark.parametrize("most", [0, 9, 2**30 - 1])
def test_morton_order(arity: int, most: int) -> None:
    """As the quadrants of a plain tree follow one another, as far as 62 bits tell."""
    given = np.random.default_rng(9).integers(0, most + 1, (300, arity + 1)).astype(np.int32)
    ordered = in_order(given)
    assert sorted(map(tuple, ordered.tolist())) == sorted(map(tuple, given.tolist()))
    top = int(given[:, :-1].max()).bit_length()
    levels = range(top - 1, max(-1, top - 1 - 62 // arity), -1)
    ways = [[[code >> b & 1 for code in entry[:-1]] for b in levels] for entry in ordered.tolist()]
    assert ways == sorted(ways)


def test_a_tree_is_outgrown_once_half_of_it_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed place becomes a live block; older versions keep what they had. What it then has, a load makes compact."""
    monkeypatch.setattr("structures.quadtree.trees._MUCH", 100)
    trees = QuadTrees([(2, 0), (2, 1)], 1 << 22)
    n = 1_000
    given = entries([(i * 7 % n, i * 11 % n, i) for i in range(n)], 2)
    for tree in (0, 1):
        trees.bulk_load(1, tree, given)
    whole, loaded = trees.live_bytes, trees.roots
    assert whole < 40 * n
    trees.delete(2, 1, given[: n // 4 - 1])
    trees.insert(3, 1, given[: n // 4 - 1])
    trees.reclaim(3, np.array([1]))
    trees.check(trees.roots, (loaded,))
    assert trees.live_bytes > whole and trees.roots[1].base == loaded[1].base and not trees.is_outgrown
    trees.delete(4, 1, given[:2])
    assert trees.is_outgrown
    monkeypatch.setattr("structures.quadtree.trees._MUCH", n)  # a change of few is not worth a copy
    assert not trees.is_outgrown


def test_a_tree_that_cannot_grow_says_so_in_time() -> None:
    """With three quarters of its codes; beyond them, it is loaded anew at once."""
    trees = QuadTrees([(2, 0), (2, 1)], 1 << 22)
    n = 40 * LEAF
    for tree in (0, 1):
        trees.bulk_load(1, tree, entries([(i * 7 % n, i * 11 % n, i) for i in range(n)], 2), n)
    bits, base = trees.roots[1].bits, trees.roots[1].base
    trees.reach(0, 1 << bits)  # a plain tree grows
    trees.reach(1, (3 << bits - 2) - 1)
    assert not trees.is_outgrown
    trees.reach(1, 3 << bits - 2)
    assert trees.is_outgrown
    trees.insert(2, 1, entries([((1 << bits) - 1, 0, n)], 2))
    assert trees.roots[1].base == base
    trees.insert(3, 1, entries([(1 << bits, 0, n + 1)], 2))
    trees.reclaim(3, NO_PINS)
    trees.check(trees.roots)
    assert trees.roots[1].bits > bits and trees.roots[1].count == n + 2 and not trees.is_outgrown


def test_a_tree_in_two_parts_is_made_anew_where_codes_grow() -> None:
    of = Trees(SHAPES[0], least=10**6)
    now: set[Entry] = set()
    for version in range(1, 12):
        inserted = [(a, 2**version, 100 * version + a) for a in range(2 * LEAF + 1)]
        of.change(version, 0, inserted, True)
        now.update(inserted)
        of.trees.reclaim(version, NO_PINS)
        of.trees.check(of.trees.roots)
    for root, (_, _, order) in zip(of.trees.roots, of.orders, strict=True):
        assert root.count == len(now) and root.bits == max(12, (2 * LEAF).bit_length()), order


@pytest.mark.parametrize("filled", [False, True])
def test_a_run_reaches_as_far_as_its_entries_whatever_it_empties_before(filled: bool) -> None:
    """A tree in two parts cannot grow: not from empty, nor where the run itself takes the last entry out."""
    of = Trees(SHAPES[0], 1 << 16, least=17)
    if filled:
        of.load(1, 0, [(0, 0, 1)])
    steps = [[0, STEP_DELETE, 0, 0]] if filled else []
    inserted = [*((0, 0, 2 + n) for n in range(LEAF + 1)), *((n, 5 * n % 64, 50 + n) for n in range(1, 40))]
    steps += [[1 + i, STEP_INSERT, 0, 3 + 3 * i] for i in range(len(inserted))]
    entries = np.array([(0, 0, 1), *inserted], np.int32).reshape(-1)
    emitted = list(of.runs.follow(2, np.array(steps, np.int64), entries, 1000))
    of.trees.check(of.trees.roots)
    now = (frozenset(inserted),)
    found = [row for one in emitted if one.inserted for row in zip(*one.rows.tolist(), strict=True)]
    assert sorted(found) == sorted(of.wanted([now] * 3)) == sorted(read_all(of.join.rows([of.trees.roots] * 3)))


def test_six_variables() -> None:
    if not JIT:
        pytest.skip("a word's sign bit is a quadrant: plain integers have none")
    cycle = Shape((2,), tuple((0, (i, (i + 1) % 6)) for i in range(6)))
    of = Trees(cycle)
    given = with_slots([(0, 1), (1, 0), (1, 2), (2, 1), (2, 2), (3, 0)])
    of.load(1, 0, given)
    assert set(read_all(of.join.rows([of.trees.roots] * 6))) == of.wanted([(frozenset(given),)] * 6)


def test_what_is_no_join() -> None:
    trees = QuadTrees([(2, 0), (2, 1)], 1 << 16)
    own = {frozenset[int](): (0, (0, 1)), frozenset({0}): (1, (0, 1))}
    And(trees, 2, [Atom(frozenset({0, 1}), own)])
    with pytest.raises(ValueError, match="7 variables"):
        And(trees, 7, [Atom(frozenset({0, 1}), own)])
    with pytest.raises(ValueError, match="does not hold"):
        And(trees, 2, [Atom(frozenset({0, 1}), {frozenset({1}): (1, (0, 1))})])
    for shapes in ([], [(5, 0)], [(2, 2)]):
        with pytest.raises(ValueError, match="no quadtrees"):
            QuadTrees(shapes, 1 << 16)


def test_room_and_what_is_missing() -> None:
    trees = QuadTrees([(2, 0)], 1 << 14)
    trees.require(1, 1)
    with pytest.raises(MemoryError):
        trees.require(10_000, 1)
    trees.bulk_load(1, 0, entries([(1, 2, 3)], 2))
    with pytest.raises(ValueError, match="empty"):
        trees.bulk_load(2, 0, entries([(1, 2, 3)], 2))
    with pytest.raises(KeyError, match="2 entries"):
        trees.delete(2, 0, entries([(1, 2, 4), (9, 9, 3)], 2))
    trees.check(trees.roots)


def taken(trees: QuadTrees) -> int:
    return (trees.live_bytes + trees.retired_bytes) // 8


@pytest.mark.parametrize("arity", [1, 2, 4])
def test_a_change_takes_no_more_room_than_was_required(arity: int) -> None:
    """The deepest split there is, and the delete that takes it back: rows of one tuple that differ in the last bits of their slots."""
    for shape in [(arity, first) for first in range(arity)]:
        trees = QuadTrees([shape], 1 << 16)
        ones = (*[(1 << CODE_BITS) - 1] * arity,)
        given = entries([(*ones, slot) for slot in range(LEAF + 1)], arity)
        trees.expect(0, given, np.ones(len(given), np.bool_))
        trees.insert(trees.version + 1, 0, given[:LEAF])
        for inserted in (True, False, True):
            before, most = taken(trees), trees.require(1, 1)
            (trees.insert if inserted else trees.delete)(trees.version + 1, 0, given[LEAF:])
            assert taken(trees) - before <= most
            if not inserted:  # one by one, until all is a leaf again
                for entry in given[: LEAF - 1]:
                    before, most = taken(trees), trees.require(1, 1)
                    trees.delete(trees.version + 1, 0, entry[None, :])
                    assert taken(trees) - before <= most
                trees.insert(trees.version + 1, 0, given[: LEAF - 1])
        trees.check(trees.roots)


def test_a_batch_for_trees_of_millions_has_room() -> None:
    """100,000 moves of rows whose relation has three trees, beside as many trees of another one."""
    trees = QuadTrees([(2, 0), (2, 1), (2, 1)] * 2)
    given = entries([(i, i, i) for i in range(LEAF)], 2)
    trees.insert(1, 0, given)
    trees.arena.C[TREE + COUNT : TREE + COUNT + 6 * TREE_WORDS : TREE_WORDS] = 5_000_000
    trees.require(3 * 200_000, 3)


@pytest.mark.skipif(not JIT, reason="tens of thousands need compiled kernels; the run with the JIT on has them")
def test_tens_of_thousands() -> None:
    rng = np.random.default_rng(5)
    of = Trees(SHAPES[0], 1 << 27)
    n = 20_000
    edges = np.unique(rng.integers(0, 2_000, (n, 2)), axis=0)
    here = {(int(a), int(b)): slot for slot, (a, b) in enumerate(edges.tolist())}
    of.load(1, 0, [(a, b, slot) for (a, b), slot in here.items()])
    assert of.trees.live_bytes < 40 * len(here)
    slot = n
    for version in range(2, 5):
        deleted = [edge for edge in here if rng.random() < 0.1]
        of.change(version, 0, [(*edge, here.pop(edge)) for edge in deleted], False)
        inserted = {(int(a), int(b)) for a, b in rng.integers(0, 2_100, (2_000, 2))} - set(here)
        for edge in sorted(inserted):
            slot += 1
            here[edge] = slot
        of.change(version, 0, [(*edge, here[edge]) for edge in inserted], True)
        of.trees.reclaim(version, NO_PINS)
    of.trees.check(of.trees.roots)
    out: dict[int, list[int]] = {}
    for a, b in here:
        out.setdefault(a, []).append(b)
    wanted = {(here[a, b], here[b, c], here[c, a]) for a, b in here for c in out.get(b, ()) if (c, a) in here}
    rows = read_all(of.join.rows([of.trees.roots] * 3), 4096)
    assert len(rows) == len(wanted) and set(rows) == wanted
