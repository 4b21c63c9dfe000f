"""`netted` against its naive twin; and many rows of one version."""

from __future__ import annotations

import numpy as np
import pytest

from structures.core.kernel import JIT
from structures.netting.net import Moves, NetRows, mixed, netted
from tests.structures.machines import drive
from tests.structures.netting.machine import NettingMachine


def test_against_the_twin() -> None:
    drive(NettingMachine, 60 if JIT else 13, 12)


def test_nothing() -> None:
    none = np.empty(0, np.int64)
    found = netted(NetRows(none, np.empty(0, np.bool_), np.empty((2, 0), np.int64)), Moves(none, none, none, np.zeros(2, np.int64)))
    assert [part.size for part in found] == [0, 0, 0]


def test_thousands_of_rows() -> None:
    """All come and go but the last, which goes and comes at another position: one table, which is full of what is no change."""
    n = 3000
    rows = np.stack((np.concatenate((np.arange(n), np.arange(n - 1), [n])), np.zeros(2 * n, np.int64)))
    emitted = NetRows(np.zeros(2 * n, np.int64), np.arange(2 * n) >= n, rows)
    moves = Moves(np.zeros(1, np.int64), np.array([n - 1]), np.array([n]), np.ones(2, np.int64))
    is_deleted, is_inserted, pairs = netted(emitted, moves)
    assert (is_deleted.tolist(), is_inserted.tolist(), pairs.tolist()) == ([n - 1], [2 * n - 1], [[0], [0]])


@pytest.mark.parametrize("apart", [2000, 1 << 13, 1 << 14, 1 << 20])
def test_values_that_are_consecutive_or_a_table_apart(apart: int) -> None:
    """Seen: slots of rows that were replaced again and again filled one run of places, and a batch of 120,000 moves took half a minute."""
    n, mask = 4000, (1 << 13) - 1
    values = np.concatenate((np.arange(n // 2), np.arange(n // 2) + apart))
    taken, steps = set[int](), 0
    for value in values.tolist():
        at = int(mixed(value)) & mask
        while at in taken:
            at, steps = (at + 1) & mask, steps + 1
        taken.add(at)
    assert steps < 2 * n
