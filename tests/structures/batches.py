"""Batches and runs of single changes, for tests of structures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from structures.core.entries import DELETE, ENTER, INSERT, LEAVE, Entries
from structures.core.entry_tree import EntryRoot, EntryTree
from structures.index.indexes import NO_ENTRIES, OrderedIndexes, Run
from structures.index.indexes import Entries as Tuples
from structures.join_tree.tree import JoinTree, RowChanges


def apply_batch(
    tree: EntryTree[Any], version: int, deletes: Entries, inserts: Entries, sink: Callable[[int, np.ndarray], bool] | None
) -> EntryRoot:
    """Delete some entries, then insert others. `sink(sign, rows)`: returns whether it wants more."""
    lengths = len(deletes.key), len(inserts.key)
    signs = np.repeat(np.array([DELETE, INSERT], np.int8), lengths)
    some = [part for part in (deletes, inserts) if len(part.key)] or [inserts]
    entries = Entries(*map(np.concatenate, zip(*some, strict=True)))

    def emitted(changes: np.ndarray, rows: np.ndarray) -> int:
        assert sink is not None
        for sign in (DELETE, INSERT):
            mine = rows[:, signs[changes] == sign]
            if mine.shape[1] and not sink(sign, mine):
                return 2
        return 0

    return tree.apply(version, signs, entries, (signs > 0).astype(np.int64), None if sink is None else emitted)


def apply_singly(tree: EntryTree[Any], version: int, signs: np.ndarray, entries: Entries, limit: int | None) -> dict[int, np.ndarray]:
    """Make changes one after another; return the rows of each that reports at most `limit`. None: none are asked for."""
    found: dict[int, list[np.ndarray]] = {at: [] for at in range(len(signs))}

    def emitted(changes: np.ndarray, rows: np.ndarray) -> int:
        assert limit is not None
        for at in np.unique(changes).tolist():
            found[at].append(rows[:, changes == at])
        last = int(changes[-1])
        return last + 1 if sum(rows.shape[1] for rows in found[last]) > limit else 0

    tree.apply(version, signs, entries, np.arange(len(signs)), None if limit is None else emitted)
    if limit is None:
        return {}
    whole = {at: np.concatenate(rows, axis=1) for at, rows in found.items() if rows}
    return {at: rows for at, rows in whole.items() if rows.shape[1] <= limit}


def apply_to_join(
    tree: JoinTree, version: int, alias: int, slots: np.ndarray, inserted: bool, sink: Callable[[bool, np.ndarray], bool] | None = None
) -> None:
    """Delete or insert described rows of an alias. `sink(come, rows)`: as in `apply_batch`; a row may be reported both ways."""
    slots = slots[tree.able(alias, slots)]
    slots = slots[tree.order(alias, slots)] if len(slots) else slots

    def emitted(changes: np.ndarray, rows: np.ndarray) -> int:
        assert sink is not None
        is_inserted = tree.is_inserted(alias, inserted, rows)
        return 0 if all(sink(sign, rows[:, is_inserted == sign]) for sign in (False, True)) else 1

    n = len(slots)
    singles = RowChanges(np.full(n, INSERT if inserted else DELETE, np.int8), np.full(n, alias), slots, slots, np.zeros(n, np.int64))
    tree.apply(version, singles, np.zeros(n, np.int64), None if sink is None else emitted)


class Changes(NamedTuple):
    """Changes of one index: entries to delete, entries to insert, and those that only move to another slot, `before` to `after`."""

    deletes: Tuples
    inserts: Tuples
    before: Tuples = NO_ENTRIES
    after: Tuples = NO_ENTRIES


def apply_to_indexes(indexes: OrderedIndexes, changes: Mapping[int, Changes]) -> Run:
    """Apply moves, then all deletes, then all inserts."""
    numbers, signs, parts = list[int](), list[int](), list[Tuples]()
    for sign in (LEAVE, ENTER, DELETE, INSERT):
        for index, one in changes.items():
            part = {LEAVE: one.before, ENTER: one.after, DELETE: one.deletes, INSERT: one.inserts}[sign]
            if len(part.slot):
                parts.append(part)
                numbers += [index] * len(part.slot)
                signs += [sign] * len(part.slot)
    made = np.array(signs, np.int8)
    ticks = np.cumsum(np.diff(made, prepend=made[:1]) != 0)
    return indexes.apply(np.array(numbers, np.int64), made, ticks, joined(parts))


def apply_steps(indexes: OrderedIndexes, numbers: np.ndarray, signs: np.ndarray, entries: Tuples, steps: np.ndarray | None = None) -> Run:
    """Make changes one after another; steps: the number of each one's tick."""
    return indexes.apply(numbers, signs, np.arange(len(numbers)) if steps is None else steps, entries)


def follow_batch(tree: Any, run: Run, sink: Callable[[int, np.ndarray], bool] | None) -> None:
    """`sink(sign, rows)`: as in `apply_batch`."""

    def emitted(changes: np.ndarray, rows: np.ndarray) -> int:
        assert sink is not None
        for sign in (DELETE, INSERT):
            mine = rows[:, run.signs[changes] == sign]
            if mine.shape[1] and not sink(sign, mine):
                return 4
        return 0

    tree.follow(run, None if sink is None else emitted)


def follow_steps(tree: Any, run: Run, limit: int | None) -> dict[int, np.ndarray]:
    """The rows of each tick that reports at most `limit`; None: none are asked for."""
    found: dict[int, list[np.ndarray]] = {}

    def emitted(changes: np.ndarray, rows: np.ndarray) -> int:
        assert limit is not None
        ticks = run.ticks[changes]
        for tick in np.unique(ticks).tolist():
            found.setdefault(tick, []).append(rows[:, ticks == tick])
        last = int(ticks[-1])
        return last + 1 if sum(part.shape[1] for part in found[last]) > limit else 0

    tree.follow(run, None if limit is None else emitted)
    whole = {tick: np.concatenate(parts, axis=1) for tick, parts in found.items()}
    return {tick: rows for tick, rows in whole.items() if limit is not None and rows.shape[1] <= limit}


def joined(parts: list[Tuples]) -> Tuples:
    """Concatenate the parts, padded to the widest."""
    if not parts:
        return NO_ENTRIES
    width = max(part.coordinates.shape[1] for part in parts)
    padded = [np.pad(part.coordinates, ((0, 0), (0, width - part.coordinates.shape[1]))) for part in parts]
    return Tuples(np.concatenate(padded), np.concatenate([part.slot for part in parts]))


def drained(cursor: Any) -> int:
    """Return how many rows there are left."""
    rows = 0
    while not cursor.done:
        rows += cursor.fill(1 << 16).shape[1]
    return rows
