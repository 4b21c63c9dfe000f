"""Deletes of all entries of a set, as of a truncate: what every structure over entries makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from structures.box.tree import BoxTree
from structures.clique.tree import CliqueTree
from structures.core.entries import NO_ENTRIES, Entries
from structures.core.entry_tree import EntryTree, Sink
from structures.core.runs import Changes
from structures.ij_heap.heap import IJHeap, Topology
from structures.interval.tree import IntervalTree
from tests.structures.machines import read_all, transposed

_N = 600  # entries of a set


class Case(NamedTuple):
    make: Callable[[], EntryTree[Any]]
    sets: int
    dimensions: int = 1
    keys: int = 2


CASES = {
    "intervals": Case(lambda: IntervalTree("pair", 1 << 22), 2),
    "intervals of one set": Case(lambda: IntervalTree("self", 1 << 22), 1),
    "a list": Case(lambda: IntervalTree("list", 1 << 22), 1, keys=1),
    "boxes": Case(lambda: BoxTree(2, "pair", 1 << 24), 2, 2),
    "boxes of one set": Case(lambda: BoxTree(3, "self", 1 << 24), 1, 3),
    "a heap": Case(lambda: IJHeap(Topology(3, [(0, 1), (1, 2)]), 1 << 22), 3),
    "cliques": Case(lambda: CliqueTree(3, 1 << 22), 1),
}


def entries(case: Case, s: int) -> Entries:
    rng = np.random.default_rng(s)
    left = rng.integers(0, 100 * _N, (_N, case.dimensions))
    right = left + rng.integers(0, 200 if case.dimensions == 1 else 4000, left.shape)
    ends = (side[:, 0].copy() if case.dimensions == 1 else side for side in (left, right))
    return Entries(np.full(_N, s, np.uint8), rng.integers(0, case.keys, _N).astype(np.int32), *ends, np.arange(_N, dtype=np.int32))


def joined(*parts: Entries) -> Entries:
    return Entries(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def told(tree: EntryTree[Any], version: int, deletes: Entries, inserts: Entries = NO_ENTRIES) -> dict[int, list[tuple[int, ...]]]:
    rows: dict[int, list[tuple[int, ...]]] = {-1: [], 1: []}

    def sink(sign: int, slots: np.ndarray) -> bool:
        rows[sign] += transposed(slots)
        return True

    tree.apply(version, deletes, inserts, sink)
    return {sign: sorted(some) for sign, some in rows.items()}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("others", [0, 5])
def test_a_set_goes_whole(case: Case, others: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No entry is taken out by itself; all rows are told, older versions stay, and what comes back makes the same rows again."""
    parts = [entries(case, s) for s in range(case.sets)]
    tree = case.make()
    before = tree.bulk_load(1, joined(*parts))
    rows = sorted(read_all(tree.rows(before)))
    assert rows
    run = tree._run

    def inserts_alone(changes: Changes, gone: int, sink: Sink | None) -> None:
        assert not gone, "entries were taken out one by one"
        run(changes, gone, sink)

    monkeypatch.setattr(tree, "_run", inserts_alone)
    some = [part.take(np.arange(others)) for part in parts[1:]]
    assert told(tree, 2, joined(parts[0], *some)) == {-1: rows, 1: []}
    assert tree.root.counts[: case.sets] == (0, *(_N - others for _ in some)) and tree.is_empty(tree.root)
    tree.check(tree.root, (before,))
    assert sorted(read_all(tree.rows(before))) == rows
    tree.reclaim(2, np.array([], np.int64))
    tree.check(tree.root)
    ordered = [tuple(sorted(row)) for row in rows] if case.sets == 1 else rows
    back = told(tree, 3, NO_ENTRIES if case.dimensions == 1 else parts[0].take(np.arange(0)), joined(parts[0], *some))
    assert [back[-1], sorted(tuple(sorted(row)) if case.sets == 1 else row for row in back[1])] == [[], sorted(ordered)]
    tree.check(tree.root)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_entry_that_is_not_there(case: Case) -> None:
    """As many as there are, but one that is another's slot: it is found missing, as ever."""
    mine = entries(case, 0)
    tree = case.make()
    tree.bulk_load(1, mine)
    wrong = mine._replace(slot=np.concatenate((mine.slot[:-1], mine.slot[-1:] + 1)))
    with pytest.raises(KeyError):
        tree.apply(2, wrong, NO_ENTRIES if case.dimensions == 1 else mine.take(np.arange(0)), None)


@pytest.mark.parametrize("case", [CASES["intervals"], CASES["boxes"]], ids=["intervals", "boxes"])
def test_the_last_few_of_a_set(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are taken out one by one where many more stay: what stays is not written anew for them."""
    few, many = entries(case, 0).take(np.arange(100)), entries(case, 1)
    tree = case.make()
    tree.bulk_load(1, joined(few, many))
    monkeypatch.setattr(tree, "_clear", None)
    tree.apply(2, few, NO_ENTRIES if case.dimensions == 1 else few.take(np.arange(0)), None)
    assert tree.root.counts == (0, _N)


@pytest.mark.parametrize("case", [CASES["intervals"], CASES["boxes"]], ids=["intervals", "boxes"])
def test_a_whole_set_without_a_delta(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its entries are taken out one by one, since they share paths, even if as many entries of the other set stay."""
    mine, others = entries(case, 0), entries(case, 1)
    tree = case.make()
    tree.bulk_load(1, joined(mine, others))
    monkeypatch.setattr(tree, "_clear", None)
    tree.apply(2, mine, NO_ENTRIES if case.dimensions == 1 else mine.take(np.arange(0)), None)
    assert tree.root.counts == (0, _N)
    tree.check(tree.root)
