"""Runs of changes: what a batch makes of them, how an alias takes them apart, and the order in which structures get them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from livejoin.wire.batch import RowBlock
from service.tables.changes import (
    DELETE,
    ENTER,
    INSERT,
    LEAVE,
    AliasChanges,
    Run,
    batch_run,
    by_version,
    in_order,
    of_versions,
    order_of,
    parted,
    versions_of,
)
from service.tables.relations import Relation
from tests.service.definitions import relation as definition

NONE = np.empty(0, np.int32)


def slots(*values: int) -> Any:
    return np.array(values, np.int32)


def changes(run: Run) -> list[tuple[int, int, int]]:
    return list(zip(run.offsets.tolist(), run.old.tolist(), run.new.tolist(), strict=True))


class Input:
    """An alias that reads the column `v`, over rows with the values `values`, by slot."""

    varying = ["v"]

    def __init__(self, values: list[int]) -> None:
        self.relation = Relation(1, "r", definition("id:int64, v:int64", {}))
        struct = self.relation.no_rows.struct
        self.relation.table.insert(1, RowBlock.few(list(enumerate(values)), struct))


@pytest.mark.parametrize(
    ("previous", "deletes", "inserted", "wanted"),
    [
        ([], [], [], []),
        ([-1], [], [5], [(0, -1, 5)]),
        ([3], [3], [5], [(0, 3, 5)]),
        ([], [7, 8], [], [(0, 7, -1), (0, 8, -1)]),
        ([-1, 3], [3], [5, 6], [(0, -1, 5), (0, 3, 6)]),
        ([3, -1, 2], [3, 2, 9], [5, 6, 7], [(0, 3, 5), (0, -1, 6), (0, 2, 7), (0, 9, -1)]),
    ],
)
def test_a_batch_is_a_run_of_one_version(previous: list[int], deletes: list[int], inserted: list[int], wanted: list[Any]) -> None:
    run = batch_run(slots(*previous), slots(*deletes), slots(*inserted))
    assert changes(run) == wanted and (run.versions, run.rows) == (1, len(deletes) + len(inserted))
    moved = run.replaced
    assert list(zip(moved.old.tolist(), moved.new.tolist(), strict=True)) == [(old, new) for _, old, new in wanted if old >= 0 and new >= 0]
    assert list(by_version({"r": run})) == [(0, {"r": run})] and versions_of({"r": run}) == 1 == versions_of({})


def parts_of(part: AliasChanges) -> list[tuple[int, int, int]]:
    return list(zip(part.offsets.tolist(), part.old.tolist(), part.new.tolist(), strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_an_alias_takes_a_run_apart(seed: int) -> None:
    """Each change once, and moved only if it keeps what the alias reads."""
    chance = random.Random(seed)
    values = [chance.randrange(2) for _ in range(12)]
    input = Input(values)
    order = list(range(12))
    chance.shuffle(order)
    kinds = [chance.randrange(3) for _ in range(chance.randrange(1, 7))]  # a row goes, comes, or is replaced
    rows = [(order[2 * i] if kind != 1 else -1, order[2 * i + 1] if kind != 0 else -1) for i, kind in enumerate(kinds)]
    versions = chance.choice([1, len(rows)])
    offsets = np.arange(len(rows)) if versions > 1 else np.zeros(len(rows), np.int64)
    run = Run(versions, offsets, slots(*[old for old, _ in rows]), slots(*[new for _, new in rows]), 0)
    for followed in (True, False):
        kept = [old >= 0 and new >= 0 and followed and values[old] == values[new] for old, new in rows]
        deleted, inserted, moved = parted(input, run, followed)
        every = changes(run)
        assert parts_of(moved) == [one for one, same in zip(every, kept, strict=True) if same]
        assert parts_of(deleted) == [one for one, same in zip(every, kept, strict=True) if not same and one[1] >= 0]
        assert parts_of(inserted) == [one for one, same in zip(every, kept, strict=True) if not same and one[2] >= 0]


def test_versions_one_by_one_across_relations() -> None:
    runs = {
        "a": Run(3, np.array([0, 2]), slots(1, -1), slots(2, 3), 3),
        "b": Run(3, np.array([1]), slots(7), slots(-1), 1),
    }
    found = [(offset, {name: changes(run) for name, run in one.items()}) for offset, one in by_version(runs)]
    assert found == [(0, {"a": [(0, 1, 2)]}), (1, {"b": [(0, 7, -1)]}), (2, {"a": [(0, -1, 3)]})]
    assert (runs["a"].replaced.offsets.tolist(), len(runs["b"].replaced.old)) == ([0], 0)
    some = [(name, run.versions, run.rows, changes(run)) for name, run in of_versions(runs, 1, 3).items()]
    assert some == [("a", 2, 1, [(1, -1, 3)]), ("b", 2, 1, [(0, 7, -1)])]
    assert of_versions(runs, 0, 3) is runs and [*of_versions(runs, 2, 3)] == ["a"]


def test_entries_in_the_order_of_versions_and_kinds() -> None:
    one, both = np.array([1]), np.array([0, 1])
    order = in_order([(INSERT, both), (DELETE, one), (ENTER, one), (LEAVE, one), (DELETE, both)])
    assert list(zip(order.offsets.tolist(), order.kinds.tolist(), order.order.tolist(), strict=True)) == [
        (0, DELETE, 5), (0, INSERT, 0), (1, LEAVE, 4), (1, ENTER, 3), (1, DELETE, 2), (1, DELETE, 6), (1, INSERT, 1),
    ]  # fmt: skip
    assert len(in_order([]).order) == 0 == len(in_order([(INSERT, np.empty(0, np.int64))]).order)


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_entries_is_that_of_the_columns_one_after_another(seed: int) -> None:
    random_ = np.random.default_rng(seed)
    n = int(random_.integers(0, 9))
    offsets, steps = random_.integers(0, 3, n), random_.integers(0, 4, n).astype(np.int8)
    key, left = random_.integers(-2, 2, n), random_.permutation(n) - 3
    for within in ([], [left], [key, left]):
        columns = [offsets, steps, *within, np.arange(n)]
        wanted = sorted(range(n), key=lambda at, columns=columns: [column[at] for column in columns])
        assert order_of(offsets, steps, *within).tolist() == wanted
