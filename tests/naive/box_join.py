"""The naive twin of `structures.box.tree`: a set of boxes and nested loops."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from structures.core.entries import Entries


class Box(NamedTuple):
    set: int
    key: int
    left: tuple[int, ...]
    right: tuple[int, ...]
    slot: int


Pair = tuple[int, int]


def entries(boxes: Iterable[Box], dimensions: int) -> Entries:
    all_ = list(boxes)
    inputs = [np.array([input[i] for input in all_], np.int64).reshape(-1, dimensions) for i in (2, 3)]
    sets, keys, slots = (np.array([box[i] for box in all_], kind) for i, kind in ((0, np.uint8), (1, np.int32), (4, np.int32)))
    return Entries(sets, keys, inputs[0], inputs[1], slots)


def touch(left: Iterable[int], right: Iterable[int], lo: Iterable[int], hi: Iterable[int]) -> bool:
    """Return whether two closed boxes share a point."""
    return all(a <= d and c <= b for a, b, c, d in zip(left, right, lo, hi, strict=True))


def meet(a: Box, b: Box) -> bool:
    return a.key == b.key and touch(a.left, a.right, b.left, b.right)


def pairs(kind: str, boxes: Iterable[Box]) -> set[Pair]:
    """Return the rows of the view: (slot of set 0, slot of set 1); "self": unordered, smaller slot first."""
    all_ = list(boxes)
    if kind == "self":
        return {(a.slot, b.slot) for a in all_ for b in all_ if a.slot < b.slot and meet(a, b)}
    return {(a.slot, b.slot) for a in all_ if a.set == 0 for b in all_ if b.set == 1 and meet(a, b)}


def in_window(boxes: Iterable[Box], lo: Iterable[int], hi: Iterable[int]) -> list[Box]:
    return [box for box in boxes if touch(box.left, box.right, lo, hi)]
