"""The naive twin of `structures.event_tree.counting`: nested loops over pairs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import NamedTuple

from structures.event_tree.counting import COMMON, LENGTHS, OWN, Recipe
from tests.naive.interval_join import Interval, meet


class Weighted(NamedTuple):
    interval: Interval
    weights: tuple[int, ...]


def totals(inputs: Sequence[Iterable[Weighted]], recipes: Sequence[Recipe], itself: int) -> list[int]:
    """Return the number of all pairs, and the sums; `recipes`: as for changes of the first side; for a set with itself, OWN refers to
    either row."""
    found = [(a, b) for a, b in product(*inputs) if meet(a.interval, b.interval)]
    if itself:
        found = [(a, b) for a, b in found if (a.interval.slot < b.interval.slot if itself == 1 else a.interval.slot != b.interval.slot)]
    return [len(found), *(sum(_of_pair(how, w, a, b) for a, b in found) for how, w in recipes)]


def _of_pair(how: int, w: int, a: Weighted, b: Weighted) -> int:
    if how == 0:
        return 1
    if how in (COMMON, LENGTHS):
        length = min(a.interval.right, b.interval.right) - max(a.interval.left, b.interval.left) + 1 + w
        return 0 if length >= 2**63 else 1 if how == LENGTHS else length
    return a.weights[w] if how & OWN else b.weights[w]
