"""The naive twin of `structures.interval.tree`: a set of intervals and nested loops."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from structures.core.entries import Entries


class Interval(NamedTuple):
    set: int
    key: int
    left: int
    right: int
    slot: int


Pair = tuple[int, int]


def entries(intervals: Iterable[Interval]) -> Entries:
    sets, keys, lefts, rights, slots = np.array(list(intervals), np.int64).reshape(-1, 5).T
    return Entries(sets.astype(np.uint8), keys.astype(np.int32), lefts.copy(), rights.copy(), slots.astype(np.int32))


def meet(a: Interval, b: Interval) -> bool:
    return a.key == b.key and a.left <= b.right and b.left <= a.right


def pairs(kind: str, intervals: Iterable[Interval]) -> set[Pair]:
    """Return the rows of the view: (slot of set 0, slot of set 1); "self": unordered, smaller slot first; "list": (slot, -1)."""
    all_ = list(intervals)
    if kind == "list":
        return {(a.slot, -1) for a in all_}
    if kind == "self":
        return {(a.slot, b.slot) for a in all_ for b in all_ if a.slot < b.slot and meet(a, b)}
    return {(a.slot, b.slot) for a in all_ if a.set == 0 for b in all_ if b.set == 1 and meet(a, b)}


def in_window(intervals: Iterable[Interval], lo: int, hi: int) -> list[Interval]:
    return [a for a in intervals if a.left <= hi and a.right >= lo]


def sweep_count(sets: np.ndarray, lefts: np.ndarray, rights: np.ndarray) -> int:
    """Return how many pairs of set 0 and set 1 meet (with a single key), by sorting: all pairs minus those in which one ends before the
    other begins."""
    n0, n1 = sets == 0, sets == 1
    before = np.searchsorted(np.sort(rights[n0]), lefts[n1], "left").sum() + np.searchsorted(np.sort(rights[n1]), lefts[n0], "left").sum()
    return int(n0.sum()) * int(n1.sum()) - int(before)
