"""The errors in the papers (`docs/science/errata.md`): each fails on its smallest counterexample as printed, and holds as corrected."""

from __future__ import annotations

import random
from itertools import combinations, permutations
from math import inf

import pytest

from service.planning.acyclicity import Edge, is_acyclic, nested_elimination_order, nested_elimination_orders
from tests.naive.natural_join import join
from tests.science import printed_heap, printed_tracker
from tests.science.printed_heap import PRINTED, PRINTED_PATH, RIGHT, Bounds, Interval, Reading, min_ij
from tests.science.printed_tracker import Relation
from tests.structures.adaptive.test_adaptive import BOW_TIE, holes, made, singles, slotted
from tests.structures.machines import read_all
from tests.structures.tree_tracker.test_tracker import tracked

PAIR = ((0, 1),)


def wanted(sets: list[list[Interval]], edges: tuple[tuple[int, int], ...], constraints: list[Bounds]) -> printed_heap.Row | None:
    return printed_heap.least([row for row in printed_heap.rows(sets, edges) if printed_heap.meets(row, constraints)])


def test_ends_of_the_constraints() -> None:
    """Tao and Yi, equations (2) and (3). One interval in each set, and one bound: the first is to begin at 1 or before."""
    sets: list[list[Interval]] = [[(2, 3)], [(1, 4)]]
    constraints = [(1, -inf), (inf, -inf)]
    assert wanted(sets, PAIR, constraints) is None
    assert min_ij(sets, PAIR, constraints, PRINTED) == ((2, 3), (1, 4))
    assert min_ij(sets, PAIR, constraints, RIGHT) is None


def test_the_path_to_the_successor() -> None:
    """Section 6.3: the pair hinges on a node with the slab [2, 7), which is not within [1.5, 6.5], nor on a path to 1 or 7."""
    sets: list[list[Interval]] = [[(1, 2), (3, 6)], [(4, 5), (7, 8)]]
    constraints = [(6.5, 1.5), (6.5, 1.5)]
    keys = [1, 2, 3, 4, 5, 6, 7, 8]
    inner = printed_heap.balanced(keys, 1, 6)
    right = printed_heap.Node(1, 8, 7, (inner, printed_heap.balanced(keys, 6, 8)))
    root = printed_heap.Node(0, 8, 2, (printed_heap.balanced(keys, 0, 1), right))
    assert wanted(sets, PAIR, constraints) == ((3, 6), (4, 5))
    assert min_ij(sets, PAIR, constraints, PRINTED_PATH, root) is None
    assert min_ij(sets, PAIR, constraints, RIGHT, root) == ((3, 6), (4, 5))


@pytest.mark.parametrize(("reading", "fails"), [(PRINTED, True), (PRINTED_PATH, True), (RIGHT, False)])
def test_random_constraints(reading: Reading, fails: bool) -> None:
    """Every end of another value, as the paper supposes."""
    rng, wrong = random.Random(4), 0
    for _ in range(4_000):
        t = rng.choice([2, 3])
        ends = rng.sample(range(1, 17), 2 * (t + rng.randrange(3)))
        sets: list[list[Interval]] = [[] for _ in range(t)]
        for at in range(len(ends) // 2):
            low, high = sorted(ends[2 * at : 2 * at + 2])
            sets[at % t].append((low, high))
        bounds = [-inf, inf, *(x / 2 for x in range(36))]
        constraints = [(rng.choice(bounds), rng.choice(bounds)) for _ in range(t)]
        edges = tuple((i, i + 1) for i in range(t - 1))
        wrong += min_ij(sets, edges, constraints, reading) != wanted(sets, edges, constraints)
    assert (wrong > 0) == fails


def chain(G: list[tuple[int, ...]]) -> list[Relation]:
    g = Relation("G", "gp", None, G)
    p = Relation("P", "p", g, [(5,)])
    c = Relation("C", "pc", p, [(5, 1), (5, 2)])
    return [g, p, c, Relation("D", "c", c, [(1,)])]


def test_an_iterator_that_has_ended_has_not_failed() -> None:
    """*TreeTracker Join*, Algorithms 5.2 to 5.4: of two rows one. Of a bag, in which G's tuple is twice, three relations are enough."""
    relations = chain([(1, 5), (2, 5)])
    assert len(printed_tracker.nested_loops(relations)) == 2
    assert [row["G"] for row in printed_tracker.join(relations, corrected=False)] == [(1, 5)]
    assert printed_tracker.join(relations, corrected=True) == printed_tracker.nested_loops(relations)
    _, tree = tracked([(0, 1), (1,), (1, 2), (2,)], [(0, 1), (1, 2), (2, 3)], [one.tuples for one in relations])
    assert len(read_all(tree.rows(tree.root, 0))) == 2
    s = Relation("S", "x", None, [(1,), (1,)])
    t = Relation("T", "xy", s, [(1, 1), (1, 2)])
    bag = [s, t, Relation("U", "y", t, [(1,)])]
    assert len(printed_tracker.join(bag, corrected=False)) == 1
    assert len(printed_tracker.join(bag, corrected=True)) == len(printed_tracker.nested_loops(bag)) == 2


@pytest.mark.parametrize(("most", "fails"), [(5, False), (9, True)])
def test_no_smaller_join_tree_loses_rows(most: int, fails: bool) -> None:
    """Trees of up to four relations, sets of few tuples: below six in all none is lost, and as corrected never."""
    rng, lost = random.Random(2), 0
    for _ in range(6_000):
        parents = rng.choice([(0,), (0, 0), (0, 1), (0, 0, 0), (0, 0, 2), (0, 1, 0), (0, 1, 1), (0, 1, 2)])
        names = "ABCD"[: len(parents) + 1]
        shared = {name: name.lower() for name in names}  # each has an attribute of its own, and one with each child
        for child, parent in enumerate(parents, 1):
            shared[names[child]] += str(child)
            shared[names[parent]] += str(child)
        sizes = [rng.choice([1, 1, 2, 3]) for _ in names]
        if sum(sizes) > most:
            continue
        relations: list[Relation] = []
        for at, name in enumerate(names):
            tuples = {tuple(rng.choice((1, 2)) for _ in shared[name]) for _ in range(sizes[at])}
            relations.append(Relation(name, shared[name], relations[parents[at - 1]] if at else None, sorted(tuples)))
        every = printed_tracker.nested_loops(relations)
        assert sorted(map(_values, printed_tracker.join(relations, corrected=True))) == sorted(map(_values, every))
        lost += len(printed_tracker.join(relations, corrected=False)) < len(every)
    assert (lost > 0) == fails


def _values(row: printed_tracker.Joined) -> tuple[tuple[int, ...], ...]:
    return tuple(row.values())


def test_dangling_tuples_after_the_first_row() -> None:
    """The proof of Theorem 5.7 supposes that none is left. S = {1, 2}, T = {1}: 2 is removed after the row of 1. The bound holds."""
    _, tree = tracked([(0,), (0,)], [(0, 1)], [[(1,), (2,)], [(1,)]])
    cursor = tree.rows(tree.root, 0)
    assert cursor.fill(1).T.tolist() == [[0, 0]] and cursor.counters["removed"] == 0
    assert read_all(cursor) == [] and cursor.counters["removed"] == 1
    assert cursor.counters["lookups"] <= 1 + cursor.counters["removed"]


def reverse_elimination_orders(edges: list[Edge]) -> set[tuple[int, ...]]:
    """By the algorithm of section D.5.2, whatever the order in which it outputs attributes that are private at once."""
    kept = [edge for at, edge in enumerate(edges) if not any(edge < one or (edge == one and at > i) for i, one in enumerate(edges))]
    private = [v for v in sorted(frozenset[int]().union(*kept)) if sum(v in edge for edge in kept) == 1]
    if not any(kept):
        return {()}
    rest = reverse_elimination_orders([edge - set(private) for edge in kept]) if private else set()
    return {(*order, *reversed(some)) for order in rest for some in permutations(private)}


def nests(edges: list[Edge], order: tuple[int, ...]) -> bool:
    """Lemma D.12 of these relations under this order."""
    for r, s in combinations(edges, 2):
        for c in r & s:
            before = set(order[: order.index(c)])
            if not (r & before <= s & before or s & before <= r & before):
                return False
    return True


AB, AC, BC, ABC = (frozenset(one) for one in ((0, 1), (0, 2), (1, 2), (0, 1, 2)))


def test_prefixes_under_a_reverse_elimination_order() -> None:
    """*Towards Instance Optimal Join Algorithms*, Lemma D.12: R(A, B), S(A, C), T(A, B, C) under B, C, A; and R(A, B), S(A, C), T(B, C),
    U(A, B, C) under every order."""
    assert is_acyclic([AB, AC, ABC]) and (1, 2, 0) in reverse_elimination_orders([AB, AC, ABC])
    assert not nests([AB, AC, ABC], (1, 2, 0)) and nests([AB, AC, ABC], (0, 1, 2))
    four = [AB, AC, BC, ABC]
    assert is_acyclic(four) and reverse_elimination_orders(four) == set(permutations(range(3)))
    assert not any(nests(four, order) for order in permutations(range(3))) and nested_elimination_order(four) is None


def test_prefixes_under_a_nested_elimination_order() -> None:
    """All sets of up to four relations over up to four attributes: the lemma holds exactly under the nested orders, which exactly the
    beta-acyclic ones have; and no smaller query is a counterexample."""
    every = [frozenset(some) for k in (1, 2, 3, 4) for some in combinations(range(4), k)]
    some_fail = set[frozenset[Edge]]()
    for count in (2, 3, 4):
        for edges in combinations(every, count):
            attributes = sorted(frozenset[int]().union(*edges))
            right = {order for order in permutations(attributes) if nests(list(edges), order)}
            assert right == set(nested_elimination_orders(edges))
            beta = all(is_acyclic(one) for size in range(1, count + 1) for one in combinations(edges, size))
            assert (right != set()) == beta
            if not reverse_elimination_orders(list(edges)) <= right:
                some_fail.add(frozenset(edges))
    assert min(map(len, some_fail)) == 3
    assert {one for one in some_fail if len(one) == 3 and frozenset[int]().union(*one) == ABC} == {
        frozenset((AB, AC, ABC)), frozenset((AB, BC, ABC)), frozenset((AC, BC, ABC)),
    }  # fmt: skip


def test_a_hole_has_a_point() -> None:
    """The same paper, Definition 4.1. R = {0, 2}, S = {(1, 1)}, T = {1}: by Lemma 4.3 (ii) the point is in the hole (0, 2), which has a
    point of S and so is none as printed. Of n such gaps in R and T the printed bound is that of one point, and n are looked at."""
    for n in (1, 10, 100):
        even, odd = singles(range(0, 2 * n + 1, 2)), range(1, 2 * n, 2)
        given = [even, [(x, x) for x in odd], even]
        _, tree = made(BOW_TIE, given)
        cursor = tree.rows(tree.root)
        assert read_all(cursor) == []
        xs = {v for (v,) in even}
        printed = sum(not any(low < x < low + 2 for x in odd) for low in range(0, 2 * n, 2))
        corrected = holes(xs, set(odd))
        assert (printed, corrected, cursor.counters["probes"]) == (0, n, n)
        assert cursor.counters["probes"] <= 2 * (corrected + 1) ** 2


def live_intervals(given: list[list[tuple[int, ...]]]) -> tuple[int, int, int]:
    """Of R, S and T: the sum over the intervals of T's range without its holes, as far as these have points, of the holes of R that have
    one of these points; the number of these intervals; the holes of T."""
    xs, points, ys = sorted({x for (x,) in given[0]}), set(given[1]), sorted({y for (y,) in given[2]})
    holes_x = [(low, high) for low, high in zip(xs, xs[1:], strict=False) if any(low < x < high for x, _ in points)]
    holes_y = [(low, high) for low, high in zip(ys, ys[1:], strict=False) if any(low < y < high for _, y in points)]
    met, live = 0, 0
    for low, high in zip([*ys[:1], *(high for _, high in holes_y)], [*(low for low, _ in holes_y), *ys[-1:]], strict=True):
        within = [x for x, y in points if low <= y <= high]
        live += within != []
        met += sum(any(a < x < b for x in within) for a, b in holes_x)
    return met, live, len(holes_y)


def test_holes_of_t_are_found_by_their_points() -> None:
    """The same paper, Theorem 4.4. R = {1}, T = {0, 2}, S = {(1, 1)}: the printed sum is 0, and one point has to be
    looked at; of n holes n."""
    for n in (1, 10, 100):
        given = [singles([1]), [(1, y) for y in range(1, 2 * n, 2)], singles(range(0, 2 * n + 1, 2))]
        _, tree = made(BOW_TIE, given)
        cursor = tree.rows(tree.root)
        assert read_all(cursor) == [] and cursor.counters["probes"] == n
        assert live_intervals(given) == (0, 0, n)


def test_random_live_intervals() -> None:
    """As corrected, with the holes of T and a point for each interval: Algorithm 4 looks at no more points than twice that."""
    rng, larger = random.Random(7), 0
    for _ in range(400):
        xs, ys = (range(rng.randrange(2, 14)) for _ in range(2))
        given: list[list[tuple[int, ...]]] = [
            singles([rng.choice(xs) for _ in range(rng.randrange(1, 8))]),
            [(rng.choice(xs), rng.choice(ys)) for _ in range(rng.randrange(1, 40))],
            singles([rng.choice(ys) for _ in range(rng.randrange(1, 8))]),
        ]
        _, tree = made(BOW_TIE, given)
        cursor = tree.rows(tree.root)
        assert set(read_all(cursor)) == join(list(map(slotted, given)), BOW_TIE)
        met, live, holes_y = live_intervals(given)
        in_vain = cursor.counters["probes"] - cursor.counters["outputs"]
        assert in_vain <= 2 * (met + live + holes_y)
        larger += in_vain > 2 * met
    assert larger > 20
