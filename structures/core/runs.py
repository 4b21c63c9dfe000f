"""A run: changes of entries that a kernel applies one after another, each with its delta against the state left by the previous ones.

A delete reports the rows of its entry, then removes it; an insert reports its rows and adds it. So each row of a delta is reported by
exactly one change, and deletes before inserts give a delta with deletes first (docs/design/versions.md, *Applying a batch*).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from structures.core.entries import DELETE, INSERT, Entries, first_refused
from structures.core.kernel import arrays, kernel

AT, BEGUN, MISSING, RUN_WORDS = range(4)  # words of a run's state: the next change, whether it has begun; deletes of what was not there
REFUSED = -1  # instead of a number of rows: an entry is invalid, and nothing was done


@arrays("int8[::1]", Entries, "int64[::1]", "int64[::1]")
class RunChanges(NamedTuple):
    """The entries `order[state[AT]:]` are still to be changed, each by its sign; done[i], unless empty: the number of rows reported when
    order[i] was done."""

    signs: np.ndarray
    entries: Entries
    order: np.ndarray
    done: np.ndarray


class Deltas(NamedTuple):
    """What each of n changes did: change i the rows [:, starts[i] : ends[i]] (int32[t, rows]), or too_large[i], and no rows."""

    starts: np.ndarray
    ends: np.ndarray
    rows: np.ndarray
    too_large: np.ndarray


Sink = Callable[[np.ndarray, np.ndarray], int]
"""Takes rows (int32[t, n], which it may keep), and for each the index of the change that reports it. Returns a tick: of changes before it
no more rows are wanted (0: of all). They are made all the same."""


@kernel
def begins(state: Any) -> bool:
    """Return whether a run begins now."""
    return state[AT] == 0 and state[BEGUN] == 0


@kernel
def refuses(state: Any, entries: Entries, sets: int) -> bool:
    """Return whether a run that begins now has an invalid entry."""
    return begins(state) and first_refused(entries, sets) >= 0


@kernel
def end_change(state: Any, done: Any, emitted: int, missing: bool) -> None:
    """Note that the change at state[AT] is made, with `emitted` rows reported so far; `missing`: it was a delete of an entry that was not
    there."""
    if len(done) > 0:
        done[state[AT]] = emitted
    state[MISSING] += missing
    state[BEGUN] = 0
    state[AT] += 1


@kernel
def has_delta(sign: int) -> bool:
    """Return whether changes of this sign have a delta: LEAVE and ENTER have none."""
    return sign == DELETE or sign == INSERT


def report(
    state: np.ndarray, done: np.ndarray, out: np.ndarray, go_on: Callable[[int, bool], int], ticks: np.ndarray, sink: Sink | None
) -> None:
    """Make the n changes of a run, as `gather`, and pass their rows to the sink whenever `out` is full. ticks: int64[n], ascending. Memory:
    O(changes), and `out`."""
    n = len(done)
    state[:RUN_WORDS] = 0
    while (first := state.item(AT)) < n:
        emitted = go_on(n, sink is not None)
        at = state.item(AT)
        if emitted and sink is not None:
            lengths = np.append(done[first:at], emitted)  # the change after the last finished one may have reported some of its rows
            lengths[1:] -= lengths[:-1]
            tick = sink(np.repeat(np.arange(first, at + 1), lengths), out[:, :emitted].copy())
            if tick and (enough := int(np.searchsorted(ticks, tick))) > at:
                go_on(enough, False)


def gather(
    state: np.ndarray, done: np.ndarray, out: np.ndarray, go_on: Callable[[int, bool], int], limit: int | None
) -> Deltas:
    """Make the n changes of a run. Its kernel notes in done (int64[n]) the number of rows reported when each was done. Returns the deltas.

    state: int64[>= RUN_WORDS]: AT says where the kernel is, the other words are the kernel's own; all are zero when it begins. `go_on(end,
    deltas)` makes changes up to index `end` (excluded) until `out` is full, and returns the number of rows reported. Deltas of more than
    `limit` rows that fill more than `out` are given up; limit None: no deltas are computed. Cost: that of the changes, and a copy of their
    deltas.
    """
    n, total = len(done), 0
    ends, too_large = np.zeros(n, np.int64), np.zeros(n, np.bool_)
    parts = [out[:, :0]]
    state[:RUN_WORDS] = 0
    while state[AT] < n:
        first = int(state[AT])
        emitted = go_on(n, limit is not None)
        at, part = int(state[AT]), out[:, :emitted]
        parts.append(part.copy())
        ends[first:at] = done[first:at] + total
        total += emitted
        if at < n and limit is not None and total - (ends[at - 1] if at else 0) > limit:
            too_large[at] = True
            go_on(at + 1, False)
            ends[at] = total
    starts = np.zeros(n, np.int64)
    starts[1:] = ends[:-1]
    starts[too_large] = ends[too_large]
    return Deltas(starts, ends, parts[-1] if len(parts) <= 2 else np.concatenate(parts, axis=1), too_large)
