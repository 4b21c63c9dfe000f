"""How much a run of single changes does in a call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from structures.core.kernel import compiled
from structures.qdag.run import STEP_INSERT, Runs
from tests.structures.machines import transposed
from tests.structures.qdag.machine import SHAPES, Trees

_ONE_STEP = 300  # steps that the last thing done in a call may take


def test_a_run_makes_so_many_steps_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an edge between two hubs that have a hundred neighbours each, none in common, and of one whose hubs share them."""
    of, n, budget = Trees(SHAPES[0]), 100, 40
    now = [(0, 2 + i, i) for i in range(n)] + [(2 + n + i, 1, n + i) for i in range(n)] + [(2 + i, 200 + n, 2 * n + i) for i in range(n)]
    of.load(1, 0, now)
    bases = [[(number, (*order, len(order))) for number, (_, _, order) in enumerate(of.orders)]]
    runs, made = Runs(of.join, bases, [0, 0, 0], budget=budget), list[int]()

    def counted(kernel: Any) -> Any:
        def call(*given: Any) -> Any:
            before = runs.steps
            lines = compiled(kernel)(*given)
            made.append(runs.steps - before)
            return lines

        return call

    monkeypatch.setattr("structures.qdag.run.compiled", counted)
    inserted = [(1, 0, 3 * n), (200 + n, 0, 3 * n + 1)]
    steps = np.array([(change, STEP_INSERT, 0, 3 * change) for change in range(len(inserted))], np.int64)
    of.trees.require(len(inserted) * len(of.orders), 1)
    found = [row for emitted in runs.follow(2, steps, np.array(inserted, np.int32).reshape(-1), 10**6) for row in transposed(emitted.rows)]
    wanted = of.wanted([(frozenset([*now, *inserted]),)] * 3)
    assert len(found) == len(set(found)) and set(found) == wanted and len(wanted) == 3 * n
    assert sum(made) > 4 * budget and max(made) <= budget + _ONE_STEP
