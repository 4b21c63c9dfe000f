"""`Visits` against its naive twin; a partner of more rows than are told at once."""

from __future__ import annotations

import numpy as np
import pytest

from structures.core.encoding import NEG_INF, POS_INF
from structures.core.entries import NO_ENTRIES, Entries
from structures.core.kernel import JIT
from structures.event_tree.counting import THEIRS
from structures.event_tree.visits import DELETE, INSERT, MOVE, EventChanges, Visits
from tests.naive.counting import Weighted
from tests.naive.interval_join import Interval
from tests.structures.event_tree.counting_machine import packed
from tests.structures.event_tree.visits_machine import VisitsMachine
from tests.structures.machines import drive


def test_against_the_twin() -> None:
    drive(VisitsMachine, 60 if JIT else 13, 20)


@pytest.mark.skipif(not JIT, reason="tens of thousands need compiled kernels")
def test_tens_of_thousands_of_rows() -> None:
    """They are told in several pieces; a row that comes in between is found by the partner behind it alone."""
    n, visits = 150_000, Visits(3, [(THEIRS, 1)])
    left = np.arange(n, dtype=np.int64)
    rows = Entries(np.zeros(n, np.uint8), np.zeros(n, np.int32), left, left + 1, np.arange(n, dtype=np.int32))
    visits.require(n + 1, 2)
    visits.load(1, rows, NO_ENTRIES, np.empty((0, 3), np.int64))
    whole, other, row = (Weighted(Interval(0, 0, NEG_INF, POS_INF, slot), (0, 5, 0)) for slot in (7, 8, n))
    found = list(visits.follow(2, packed([(INSERT, 1, whole, -1), (INSERT, 0, row, -1), (INSERT, 1, other, -1), (DELETE, 1, whole, -1)])))
    counts = np.bincount(np.concatenate([numbers for _, _, numbers, _ in found]), minlength=4)
    assert counts.tolist() == [n, 0, n + 1, n + 1] and len(found) > 4
    assert found[-1][0] == 4 and found[-1][1].rows.tolist() == [0, 1, 0, 0] and found[-1][1].sums[1, 0, 0] == 5
    visits.check()


def test_what_is_not_there_cannot_go() -> None:
    one = Weighted(Interval(0, 0, 1, 2, 7), (0, 0, 0))
    for input in (0, 1):
        for kind in (DELETE, MOVE):
            with pytest.raises(KeyError, match="not there"):
                list(Visits(3, [(0, 0)], 1 << 20).follow(2, packed([(kind, input, one, 3)])))


@pytest.mark.parametrize("column", EventChanges._fields)
def test_columns_that_are_too_short_are_refused_first(column: str) -> None:
    visits = Visits(3, [(0, 0)], 1 << 20)
    changes = packed([(INSERT, input, Weighted(Interval(0, 0, 1, 2, 7), (0, 0, 0)), 3) for input in (0, 1)])
    with pytest.raises(ValueError, match="different lengths"):
        list(visits.follow(2, changes._replace(**{column: getattr(changes, column)[:1]})))
    assert visits.entries == 0
    visits.check()
