"""Apply pairs that come and go, and changes of the rows of one side, in the order of their versions: find the rows that lose their last
partner or gain a first one.

A row that is deleted or inserted in the current version has OPEN added to its count, so that its own pairs do not flip it: a deleted row is
judged by its count before the version, an inserted one by its count once all pairs of the version are counted. No pair flips a guessed row:
when few of its counted partners are left, the row is reported.

Costs: O(1) a pair and a row; O(log n) a row that is inserted into the list or removed from it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.blocks import Nodes, WriteState
from structures.core.entries import Entries
from structures.core.kernel import arrays, kernel, wide
from structures.ordered.tree import cut, put

# Words of the state: own changes begun, of each kind; inserted rows that are settled; how often a row had few left; the last two as in
# `PairCounts`.
DELETED, MOVED, INSERTED, SETTLED, NOTED, FLIPS, LEAST, STATE_WORDS = range(8)
OPEN = 1 << 30
GUESSED = 1 << 29  # added to the count of a row that has more partners than are counted
SILENT = -1  # in place of a version: a row without a partner moves, which is not reported
FEW = -2  # likewise: fewer than LEAST partners of a guessed row are counted


@arrays("int64[::1]", "int32[::1]", "int64[::1]", "int32[::1]", "int32[::1]", "uint8[::1]", "int64[::1]", "int32[::1]")
class OwnRows(NamedTuple):
    """The rows of one side that a run changes: for each the offset of its version, ascending, and its slot. A row that moves to another
    slot keeps its state; `emitted`: it is nevertheless reported as deleted and inserted, if it has no partner."""

    deleted_at: np.ndarray
    deleted: np.ndarray
    moved_at: np.ndarray
    former: np.ndarray
    moved: np.ndarray
    emitted: np.ndarray
    inserted_at: np.ndarray
    inserted: np.ndarray


@arrays("int64[::1]", "uint8[::1]", "int32[::1]")
class Pairs(NamedTuple):
    """For each pair the offset of its version, ascending, whether it comes, and the slot of its row."""

    at: np.ndarray
    is_inserted: np.ndarray
    slots: np.ndarray


@arrays("int64[::1]", "int32[::1]")
class Flips(NamedTuple):
    """For each flip the offset of its version, or SILENT, and the slot of a row that now has no partner, or ~slot of one that has a partner
    or is deleted; or FEW and a row's slot."""

    at: np.ndarray
    slots: np.ndarray


@kernel("int64(OwnRows, int64[::1], int32[::1], Pairs, Flips, int64)")
def count_pairs(own: OwnRows, state: Any, counts: Any, pairs: Pairs, flips: Flips, until: int) -> int:
    """Count these pairs, then begin the own changes of the versions up to `until`. Returns the number of flips. O(1) a pair."""
    n, version, least = 0, -1, GUESSED + state[LEAST]
    for i in range(len(pairs.slots)):
        if pairs.at[i] != version:
            version = pairs.at[i]
            n = begin_versions(own, state, counts, flips, n, version)
        s = pairs.slots[i]
        count = counts[s]
        if pairs.is_inserted[i] != 0:
            counts[s] = count + 1
            if count == 0:
                n = note(flips, n, version, ~s)
                state[FLIPS] += 1
        else:
            counts[s] = count - 1
            if count == 1:
                n = note(flips, n, version, s)
                state[FLIPS] += 1
            elif count == least:
                n = note(flips, n, FEW, s)
                state[NOTED] += 1
    return begin_versions(own, state, counts, flips, n, until)


@kernel(forceinline=True)
def note(flips: Flips, n: int, at: int, slot: int) -> int:
    flips.at[n], flips.slots[n] = at, slot
    return n + 1


@kernel
def begin_versions(own: OwnRows, state: Any, counts: Any, flips: Flips, n: int, until: int) -> int:
    """Begin the changes of the side's own rows up to a version, and end those of the versions before it. Returns the number of flips so
    far."""
    while state[DELETED] < len(own.deleted) and own.deleted_at[state[DELETED]] <= until:
        s = own.deleted[state[DELETED]]
        if counts[s] == 0:
            n = note(flips, n, own.deleted_at[state[DELETED]], ~s)
        counts[s] = OPEN
        state[DELETED] += 1
    while state[MOVED] < len(own.moved) and own.moved_at[state[MOVED]] <= until:
        i = state[MOVED]
        s, former = own.moved[i], own.former[i]
        counts[s] = counts[former]
        if counts[s] == 0:
            at = own.moved_at[i] if own.emitted[i] != 0 else SILENT
            n = note(flips, n, at, ~former)
            n = note(flips, n, at, s)
        elif GUESSED // 2 < counts[s] < GUESSED + state[LEAST]:
            n = note(flips, n, FEW, s)
            state[NOTED] += 1
        counts[former] = OPEN
        state[MOVED] += 1
    while state[INSERTED] < len(own.inserted) and own.inserted_at[state[INSERTED]] <= until:
        counts[own.inserted[state[INSERTED]]] = OPEN
        state[INSERTED] += 1
    while state[SETTLED] < state[INSERTED] and own.inserted_at[state[SETTLED]] < until:
        s = own.inserted[state[SETTLED]]
        counts[s] -= OPEN
        if counts[s] == 0:
            n = note(flips, n, own.inserted_at[state[SETTLED]], s)
        state[SETTLED] += 1
    return n


@kernel("int64(Nodes, WriteState, Entries, uint8[::1])")
def relist(nodes: Nodes, writing: WriteState, entries: Entries, inserted: Any) -> int:
    """Insert these rows into the list, or remove them, one after another. Returns how many of these were not there. O(log n) a row."""
    keys, lefts, slots = entries.key, entries.left, entries.slot
    missing = 0
    for i in range(len(inserted)):
        if inserted[i] != 0:
            put(nodes, writing, 0, wide(keys[i]), lefts[i], entries.right[i], wide(slots[i]))
        elif not cut(nodes, writing, 0, wide(keys[i]), lefts[i], wide(slots[i])):
            missing += 1
    return missing
