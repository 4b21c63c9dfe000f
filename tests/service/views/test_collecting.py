"""What a stage tells of its own rows, gathered by version; and what a join tells of one version, netted."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from service.tables.changes import Run
from service.views import collecting
from service.views.collecting import Collector, RetainedRows, RowCollector
from service.views.deltas import emit
from structures.rows.succession import VersionSlots


def emitted(*versions: tuple[int, list[int], list[int]]) -> VersionSlots:
    """Numbers, slots that go, slots that come."""
    starts = np.cumsum([0, *(len(deleted) + len(inserted_rows) for _, deleted, inserted_rows in versions)])
    slots = [slot for _, deleted, inserted_rows in versions for slot in (*deleted, *inserted_rows)]
    numbers, deletes = ([one[0] for one in versions], [len(one[1]) for one in versions])
    return VersionSlots(np.array(numbers), starts, np.array(deletes), np.array(slots, np.int32))


def test_a_version_that_is_too_large_takes_no_other_with_it() -> None:
    """Rows of several versions are told at once; the first of them turns out to be too large."""
    collector = RowCollector(3)
    collector.take(0, emitted((0, [4, 5], [7, 8, 9, 10]), (1, [6], [])))
    left = collector.delta(10)
    assert left is not None
    assert (left.cut, left.versions, left.starts, left.deletes, left.slots[0].tolist()) == (10, [11], [0, 1], [1], [6])


@pytest.mark.parametrize("seed", range(30))
def test_runs(seed: int) -> None:
    """Told as stages do it: some versions at once, or one in pieces, of each the rows that go before those that come."""
    random, most = Random(seed), 6
    collector = RowCollector(most)
    all_: dict[int, tuple[list[int], list[int]]] = {}
    first = slot = 0
    for _ in range(random.randrange(9)):
        versions = random.choice((1, 1, 3))
        for _ in range(random.randrange(1, 4) if versions == 1 else 1):
            parts = []
            for number in range(versions):
                both: list[list[int]] = [[], []]
                for rows in both:
                    count = random.randrange(most // 2 if versions == 1 else most)
                    rows += range(slot, slot + count)
                    slot += count
                if any(both):
                    parts.append((number, both[0], both[1]))
                    for kept, rows in zip(all_.setdefault(first + number, ([], [])), both, strict=True):
                        kept += rows
            if parts:
                collector.take(first, emitted(*parts))
        first += versions
    cut = max((offset for offset, (deleted, inserted_rows) in all_.items() if len(deleted) + len(inserted_rows) > most), default=-11)
    wanted = [(10 + offset, deleted, inserted_rows) for offset, (deleted, inserted_rows) in sorted(all_.items()) if offset > cut]
    delta = collector.delta(10)
    if delta is None:
        assert not all_
        return
    assert delta.cut == 10 + cut
    found = []
    for number, version in enumerate(delta.versions):
        part = delta.part(number, number + 1)
        rows = part.slots[0].tolist()
        found.append((version, rows[: part.deletes[0]], rows[part.deletes[0] :]))
    assert found == wanted


Pairs = set[tuple[int, int]]


def netted(deleted: Pairs, inserted_rows: Pairs, moved: dict[int, int], alike: bool = False) -> tuple[Pairs, Pairs]:
    """Return the rows, of two aliases, that a delta of one version deletes and inserts. `moved`: rows of the first alias; alike: they look
    as those that replace them."""
    collector = Collector(1000, 1)
    for inserted, rows in enumerate((deleted, inserted_rows)):
        first, second = np.array(sorted(rows), np.int32).reshape(-1, 2).T
        emit(collector, 0, bool(inserted), (first, second))
    old, new = np.array([*moved], np.int32), np.array([*moved.values()], np.int32)
    runs = {"a": Run(1, np.zeros(len(old), np.int64), old, new, 2 * len(old))}
    table = SimpleNamespace(same=lambda columns, old, new: np.ones(len(old), np.bool_))
    inputs = [cast(Any, SimpleNamespace(relation=SimpleNamespace(name=name, table=table), output=[])) for name in "ab"]
    delta = collector.delta(5, RetainedRows(inputs, runs, cast(Any, SimpleNamespace()) if alike else None, 1000))
    if delta is None:
        return set(), set()
    left = [*zip(*(slots.tolist() for slots in delta.slots), strict=True)]
    assert len(left) == len(set(left)) == delta.starts[-1]
    return {*left[: delta.deletes[0]]}, {*left[delta.deletes[0] :]}


@pytest.mark.parametrize("seed", range(40))
def test_few_rows_of_one_version(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not a look at a few slots shows that none cancel: rows that only come and go are left out, all others are told."""
    random = Random(seed)
    second = range(random.choice((2, 50)))  # slots of the second alias: with many, most rows have nothing in common

    def some(slots: range) -> Pairs:
        return {(random.choice(slots), random.choice(second)) for _ in range(random.randrange(1, 5))}

    moved = {old: old + 10 for old in range(random.randrange(3))}
    deleted, inserted_rows = some(range(5)), some(range(14))
    inserted_rows |= {row for row in deleted if random.random() < 0.2}
    found = netted(deleted, inserted_rows, moved)
    monkeypatch.setattr(collecting, "_FEW", 0)  # all of them by the kernel
    assert found == netted(deleted, inserted_rows, moved) == (deleted - inserted_rows, inserted_rows - deleted)


def test_rows_of_which_a_part_is_replaced_by_one_that_looks_alike_are_unchanged() -> None:
    """The slots of the replaced part have nothing in common."""
    assert netted({(0, 7)}, {(10, 7)}, {0: 10}, True) == (set(), set())
    assert netted({(0, 7), (0, 8)}, {(10, 7), (10, 9)}, {0: 10}, True) == ({(0, 8)}, {(10, 9)})
    assert netted({(0, 7)}, {(10, 8)}, {0: 10}, True) == ({(0, 7)}, {(10, 8)})
