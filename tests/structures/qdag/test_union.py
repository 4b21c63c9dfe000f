"""Unions of ANDs with groups against their naive twin, and what the paper says of lazy qdags, by counting."""

from __future__ import annotations

import numpy as np
import pytest

from structures.core.kernel import JIT
from structures.qdag.union import Branch, Or
from tests.naive.natural_join import Entry
from tests.structures.machines import drive, transposed
from tests.structures.qdag.machine import Shape, Trees
from tests.structures.qdag.test_absent import loaded, random_points, with_slots
from tests.structures.qdag.union_machine import SHAPES, Union, UnionMachine, union_over


def test_against_the_twin() -> None:
    drive(UnionMachine, 20 if JIT else 6, 8)


def emitted(of: Or, trees: Trees) -> list[tuple[int, ...]]:
    """All tuples, in the order in which they are told."""
    cursor, found = of.rows(trees.trees.roots), list[tuple[int, ...]]()
    while not cursor.done:
        found += [row[of.lines :] for row in transposed(cursor.fill(1000))]
    return found


def over(branches: list[Shape], relations: list[list[Entry]]) -> tuple[Or, Trees]:
    trees = loaded(Shape(branches[0].arities, branches[0].atoms), relations)
    return union_over(Union(branches), trees), trees


@pytest.mark.parametrize("n", [5, 400] if JIT else [5, 50])
def test_a_branch_twice_tells_each_row_once(n: int) -> None:
    """L3; the second branch costs a step a row and a look-up, besides its own."""
    points = random_points(1, n, 40, 2)
    branch = Shape((2,), ((0, (0, 1)),))
    twice, trees = over([branch, branch], [points])
    once, _ = union_over(Union([branch]), trees), None
    found = emitted(twice, trees)
    assert sorted(found) == sorted(point[:-1] for point in points)
    cursor, alone = twice.rows(trees.trees.roots), once.rows(trees.trees.roots)
    for one in (cursor, alone):
        while not one.done:
            one.fill(1000)
    assert cursor.counters == {"looked_up": len(points), "excluded": 0, "repeated": len(points)}
    assert cursor.steps == 2 * alone.steps + len(points) and alone.counters["repeated"] == 0


def test_rows_of_one_tuple_are_told_once() -> None:
    """In leaves, in cells of many leaves, of the driving atom and of the others; at the cost of one row each."""
    many = [(1, 2, slot) for slot in range(300)] + [(1, 3, 900), (1, 3, 901), (4, 2, 902)]
    more = [(2, 7, 1000 + slot) for slot in range(500)] + [(3, 7, 2000), (3, 8, 2001), (3, 8, 2002)]
    path, trees = over([Shape((2, 2), ((0, (0, 1)), (1, (1, 2))))], [many, more])
    assert sorted(emitted(path, trees)) == [(1, 2, 7), (1, 3, 7), (1, 3, 8), (4, 2, 7)]
    assert path.rows(trees.trees.roots).steps == 0
    cursor = path.rows(trees.trees.roots)
    while not cursor.done:
        cursor.fill(1000)
    assert cursor.steps < 40, "not one for each of the 150,000 combinations"


def test_a_relation_less_itself_costs_its_entries() -> None:
    """What the page says of A EXCEPT A: nothing is told, and every entry is looked at; a relation less an empty one costs nothing more."""
    points = random_points(4, 200 if JIT else 30, 30, 2)
    less = Shape((2, 2), ((0, (0, 1)),), (((1, (0, 1)),),))
    for other, wanted in ((points, []), ([], sorted(point[:-1] for point in points))):
        difference, trees = over([less], [points, list(other)])
        cursor, found = difference.rows(trees.trees.roots), list[tuple[int, ...]]()
        while not cursor.done:
            found += [row[1:] for row in transposed(cursor.fill(1000))]
        assert sorted(found) == wanted
        assert cursor.counters["excluded"] == (len(points) if not wanted else 0) and cursor.steps <= 2 * len(points)


def test_a_change_asks_only_for_what_agrees_with_it() -> None:
    """A tuple that comes into a relation of many: its partners are read, and looked up in what there was."""
    n, input = (400, 40) if JIT else (60, 15)
    r, s = random_points(5, n, input, 2), random_points(6, n, input, 2)
    union = [Shape((2, 2), ((0, (0, 1)), (1, (1, 2)))), Shape((2, 2), ((1, (1, 2)), (1, (0, 1))))]
    of, trees = over(union, [r, s])
    before, was = trees.trees.roots, {tuple(one) for one in emitted(of, trees)}
    trees.change(2, 0, [(77, 5, 5000)], True)
    cursor = of.changes(0, 0, np.array([[77, 5]], np.int32), trees.trees.roots, before)
    found = set[tuple[int, ...]]()
    while not cursor.done:
        found |= {row[of.lines :] for row in transposed(cursor.fill(3))}
    assert found == {(77, 5, c) for b, c, _ in s if b == 5} == {tuple(one) for one in emitted(of, trees)} - was
    assert cursor.steps < 20 * (1 + len(found))


def test_an_empty_branch_is_passed_over() -> None:
    union, trees = over([SHAPES[2], SHAPES[3]], [[], with_slots([(1,), (2,)])])
    assert union.is_empty(0, trees.trees.roots) and sorted(emitted(union, trees)) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    empty, trees = over([SHAPES[2]], [[], []])
    assert empty.rows(trees.trees.roots).done and emitted(empty, trees) == []


def test_what_is_refused() -> None:
    of = Trees(Shape((2, 1), ((0, (0, 1)),)))
    with pytest.raises(ValueError, match="a branch has to have all variables"):
        Or(of.trees, 2, [Branch([of._atom(0, (0, 1))]), Branch([of._atom(1, (0,))])])
