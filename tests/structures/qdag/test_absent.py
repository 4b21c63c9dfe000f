"""NOT EXISTS groups against their naive twin, and what the paper says of lazy qdags, by counting."""

from __future__ import annotations

import numpy as np
import pytest

from structures.core.kernel import JIT
from structures.qdag.qdag import And, Atom
from structures.quadtree.trees import QuadTrees
from tests.naive.natural_join import Entry
from tests.structures.machines import drive, read_all
from tests.structures.qdag.absent_machine import SHAPES, AbsentMachine
from tests.structures.qdag.machine import Shape, Trees

PAPER = SHAPES[1]


def test_against_the_twin() -> None:
    drive(AbsentMachine, 40 if JIT else 6, 8)


def with_slots(points: list[tuple[int, ...]]) -> list[Entry]:
    return [(*point, 100 + i) for i, point in enumerate(points)]


def random_points(seed: int, n: int, input: int, arity: int) -> list[Entry]:
    rng = np.random.default_rng(seed)
    return with_slots([tuple(one) for one in np.unique(rng.integers(0, input, (n, arity)), axis=0).tolist()])


def loaded(shape: Shape, relations: list[list[Entry]]) -> Trees:
    of = Trees(shape)
    for relation, given in enumerate(relations):
        of.load(1, relation, given)
    return of


@pytest.mark.parametrize("n", [5, 400] if JIT else [5, 50])
def test_a_relation_without_itself_is_empty(n: int) -> None:
    """L1: R and not R; the paper's example of what no formula with R twice finds at once: as many nodes as R has entries."""
    points = random_points(1, n, 40, 2)
    of = loaded(Shape((2, 2), ((0, (0, 1)),), (((1, (0, 1)),),)), [points, points])
    cursor = of.join.rows([of.trees.roots] * 2)
    assert read_all(cursor) == []
    assert cursor.steps == cursor.dead_ends == cursor.counters["excluded"] == len(points)


@pytest.mark.parametrize("n", [5, 400] if JIT else [5, 50])
def test_an_empty_group_costs_no_step(n: int) -> None:
    """L2: the nodes are those of the positive part."""
    r, s = random_points(2, n, 30, 2), random_points(3, n, 30, 2)
    of, without = loaded(PAPER, [r, s, []]), loaded(Shape(PAPER.arities[:2], PAPER.atoms), [r, s])
    cursor, other = of.join.rows([of.trees.roots] * 3), without.join.rows([without.trees.roots] * 2)
    assert read_all(cursor) == read_all(other)
    assert cursor.steps == other.steps and cursor.dead_ends == other.dead_ends
    assert cursor.counters == {"looked_up": 0, "excluded": 0} and other.counters == {}


@pytest.mark.parametrize("seed", range(5))
def test_a_group_adds_no_joint_node(seed: int) -> None:
    """Joint nodes and leaf entries tried are at most those of the positive part, on both ends of what a group leaves."""
    r, s, t = (random_points(seed + i, 150, 25, 2) for i in range(3))
    whole = with_slots([(a, c) for a in range(25) for c in range(25)])
    without = loaded(Shape(PAPER.arities[:2], PAPER.atoms), [r, s])
    other = without.join.rows([without.trees.roots] * 2)
    rows = read_all(other)
    for negated in (t, whole):
        of = loaded(PAPER, [r, s, negated])
        cursor = of.join.rows([of.trees.roots] * 3)
        found = read_all(cursor, 7)
        assert set(found) == of.wanted([(frozenset(r), frozenset(s), frozenset(negated))] * 3)
        assert cursor.steps <= other.steps + len(rows), "besides, each row is a step where it is tried alone"
        assert cursor.counters["excluded"] > 0
    assert not found


def test_values_that_are_given_are_full_or_empty_at_once() -> None:
    """A group whose variables an entry gives ends it before anything is searched, or is forgotten."""
    r, s = with_slots([(0, 0), (1, 0)]), with_slots([(0, c) for c in range(50)])
    of = loaded(Shape((2, 2, 1), ((0, (0, 1)), (1, (1, 2))), (((2, (0,)),),)), [r, s, with_slots([(1,)])])
    cursor = of.join.rows([of.trees.roots] * 3)
    assert sorted(read_all(cursor)) == [(100, 100 + c) for c in range(50)]
    assert cursor.counters == {"looked_up": 0, "excluded": 1}


def test_a_group_of_larger_codes_than_the_others() -> None:
    """Its root lies above theirs, or below."""
    r, s = random_points(5, 60, 8, 2), random_points(6, 60, 8, 2)
    for t in (random_points(7, 40, 8, 2) + [(2**29, 5, 9000)], [(1, 1, 1), (0, 1, 2)]):
        of = loaded(PAPER, [r, s, t])
        assert set(read_all(of.join.rows([of.trees.roots] * 3), 5)) == of.wanted([(frozenset(r), frozenset(s), frozenset(t))] * 3)
    far = [(a + 2**20, b + 2**20, slot) for a, b, slot in r]
    of = loaded(PAPER, [far, [(b + 2**20, c + 2**20, slot) for b, c, slot in s], random_points(7, 40, 8, 2)])
    assert len(read_all(of.join.rows([of.trees.roots] * 3))) == len(of.wanted([(frozenset(far), of_far(s), frozenset())] * 3))


def of_far(given: list[Entry]) -> frozenset[Entry]:
    return frozenset((b + 2**20, c + 2**20, slot) for b, c, slot in given)


def test_what_is_refused() -> None:
    trees = QuadTrees([(1, 0), (1, 0)])
    own = [Atom(frozenset([v]), {frozenset(): (v, (v,))}) for v in range(2)]
    with pytest.raises(ValueError, match="a group has a variable that no other atom has"):
        And(trees, 2, own[:1], [own[1:]])
    with pytest.raises(ValueError, match="no AND of 9 qdags"):
        And(trees, 2, own, [own[:1]] * 7)
