"""What changes come to while a view is built, against a count of every slot."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from service.tables import backlog as backlogs
from service.tables.backlog import Backlog, Net
from service.tables.changes import Run
from service.tables.relations import Relation

Change = tuple[int, int]
"""Old slot, new slot; -1: none."""


def noted(backlog: Backlog, version: int, changes: dict[str, list[Change]]) -> None:
    runs = {}
    for name, pairs in changes.items():
        old, new = (np.array(side, np.int32) for side in zip(*pairs, strict=True))
        runs[name] = Run(1, np.zeros(len(pairs), np.int64), old, new, len(pairs))
    backlog.note(version, runs)


def found(nets: list[Net]) -> dict[str, tuple[list[int], list[int]]]:
    return {net.relation.name: (net.gone.tolist(), net.come.tolist()) for net in nets}


def backlog_of(*names: str) -> Backlog:
    return Backlog([cast(Relation, SimpleNamespace(name=name)) for name in names])


def test_a_slot_counts_once_whatever_was_in_it_between() -> None:
    """Rows move, go and come at random, to slots that others have left."""
    rng = np.random.default_rng(5)
    backlog, at_first, living = backlog_of("r"), set(range(40)), set(range(40))
    version = 1
    for _ in range(60):
        for _ in range(int(rng.integers(1, 30))):
            version += 1
            old = int(rng.choice(sorted(living))) if living and rng.random() < 0.7 else -1
            new = int(rng.choice(sorted(set(range(300)) - living))) if old < 0 or rng.random() < 0.7 else -1
            noted(backlog, version, {"r": [(old, new)]})
            living = (living - {old}) | ({new} - {-1})
        wanted = sorted(at_first - living), sorted(living - at_first)
        assert found(backlog.take(version)) == {"r": wanted} and backlog.changes == 0
        at_first = set(living)


def test_later_versions_and_other_relations_wait() -> None:
    backlog = backlog_of("r", "s")
    noted(backlog, 2, {"r": [(0, 5), (-1, 6)], "t": [(1, 2)]})
    noted(backlog, 3, {"r": [(5, 7)], "s": [(-1, 1), (-1, 3)]})
    assert backlog.changes == 5
    assert found(backlog.take(2)) == {"r": ([0], [5, 6])}
    assert backlog.changes == 3
    assert found(backlog.take(3)) == {"r": ([5], [7]), "s": ([], [1, 3])}
    assert backlog.take(9) == [] and backlog.changes == 0


def test_what_came_before_a_relation_is_read_is_skipped() -> None:
    backlog = backlog_of("r", "s")
    noted(backlog, 2, {"r": [(0, 5)], "s": [(4, -1)]})
    noted(backlog, 3, {"r": [(5, 7), (1, -1)]})
    noted(backlog, 4, {"r": [(7, 8)]})
    backlog.skip("r", 3)
    assert backlog.changes == 2
    assert found(backlog.take(3)) == {"s": ([4], [])}
    backlog.skip("s", 4)
    assert found(backlog.take(4)) == {"r": ([7], [8])} and backlog.changes == 0


def test_what_is_noted_while_others_are_taken_comes_behind_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer does not wait while the changes are looked at."""
    backlog = backlog_of("r")
    slots, versions = backlogs._slots, iter(range(3, 9))

    def slowly(parts: Any) -> Any:
        version = next(versions)
        noted(backlog, version, {"r": [(version, version + 1)]})
        return slots(parts)

    monkeypatch.setattr(backlogs, "_slots", slowly)
    noted(backlog, 1, {"r": [(1, 2)]})
    noted(backlog, 2, {"r": [(2, 3)]})
    assert found(backlog.take(1)) == {"r": ([1], [2])}
    assert backlog.changes == 3
    assert found(backlog.take(2)) == {"r": ([2], [3])}
    assert found(backlog.take(4)) == {"r": ([3], [5])}
    assert backlog.changes == 4
