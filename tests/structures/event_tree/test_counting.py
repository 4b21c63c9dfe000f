"""`Counting` against its naive twin, and hostile data: an interval that meets all others comes and goes."""

from __future__ import annotations

import numpy as np
import pytest

from structures.core.encoding import NEG_INF, POS_INF
from structures.core.kernel import JIT
from structures.event_tree.counting import DELETE, INSERT, MOVE, OWN, THEIRS, Counting, EventChanges
from tests.naive.counting import Weighted
from tests.naive.interval_join import Interval, entries
from tests.structures.event_tree.counting_machine import CountingMachine, amounts, packed
from tests.structures.machines import drive

RECIPES = [(0, 0), (OWN, 1), (THEIRS, 1)], [(0, 0), (THEIRS, 1), (OWN, 1)]


def test_against_the_twin() -> None:
    drive(CountingMachine, 60 if JIT else 13, 20)


@pytest.mark.parametrize("n", [1_000, pytest.param(100_000, marks=pytest.mark.skipif(not JIT, reason="needs compiled kernels"))])
def test_partners_are_not_visited(n: int) -> None:
    """One that meets all of a group comes and is_deleted: a way or two through a tree, not one for each."""
    counting = Counting((3, 3), RECIPES)
    n = n if JIT else 100
    left = np.arange(n, dtype=np.int64) * 10
    some = entries(()).take(np.empty(0, np.int64))
    others = entries([Interval(1, 0, int(at), int(at) + 5, slot) for slot, at in enumerate(left.tolist())])
    weights = np.stack([left * 0, left * 0 + 2**62, left * 0], axis=1)
    counting.load(some, others, (np.empty((0, 3), np.int64), weights))
    before = counting.steps
    whole = Weighted(Interval(0, 0, NEG_INF, POS_INF, 7), (0, -5, 0))
    for kind in (INSERT, DELETE):
        assert amounts(counting.follow(packed([(kind, 0, whole, -1)]))) == [[n, n, -5 * n, n * 2**62]]
    assert counting.steps - before <= 2 * 2 * 40
    counting.check()


def test_what_is_not_there_cannot_go() -> None:
    one = Weighted(Interval(0, 0, 1, 2, 7), (0, 0, 0))
    for kind in (DELETE, MOVE):
        with pytest.raises(KeyError, match="not there"):
            Counting((3, 3), RECIPES, 0, 1 << 20).follow(packed([(kind, 0, one, 3)]))


@pytest.mark.parametrize("column", EventChanges._fields)
def test_columns_that_are_too_short_are_refused_first(column: str) -> None:
    counting = Counting((3, 3), RECIPES, 0, 1 << 20)
    changes = packed([(INSERT, input, Weighted(Interval(0, 0, 1, 2, 7), (0, 0, 0)), 3) for input in (0, 1)])
    with pytest.raises(ValueError, match="different lengths"):
        counting.follow(changes._replace(**{column: getattr(changes, column)[:1]}))
    with pytest.raises(ValueError, match="3 weights"):
        counting.follow(changes._replace(weights=changes.weights[:, :2].copy()))
    assert counting.intervals == 0
    counting.check()


def test_room() -> None:
    counting = Counting((3, 3), RECIPES, 0, 1 << 16)
    counting.require(10, 10)
    for many in ((1 << 20, 0), (0, 1 << 20)):
        with pytest.raises(MemoryError, match="size"):
            counting.require(*many)
