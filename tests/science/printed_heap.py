"""Section 6 of Tao and Yi, *Intersection Joins under Updates*, over lists: how a min-IJ query with constraints is answered.

An interval tree on all endpoints; a result tuple hinges on the highest node whose stabbing set has one of its intervals. Category 1: the
nodes on two paths, each of which answers the query itself. Category 2: the nodes whose slabs lie in [b, a], each with its least tuple,
whatever the constraints. Errors are in the choice of a and b (equations 2 and 3) and of the first path.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import inf
from typing import NamedTuple

Interval = tuple[float, float]
Row = tuple[Interval, ...]
Bounds = tuple[float, float]
"""Of a set: its interval begins at the first or before, and ends at the second or behind."""


class Reading(NamedTuple):
    """What a and b are of those of the constraints, and whether the first path leads to the successor or the predecessor of a."""

    a: Callable[[Sequence[float]], float]
    b: Callable[[Sequence[float]], float]
    to_successor: bool


PRINTED = Reading(max, min, True)
PRINTED_PATH = Reading(min, max, True)
RIGHT = Reading(min, max, False)


class Node(NamedTuple):
    """Of the keys from `first` to before `end`; `key`: the least of its right subtree, or its only one."""

    first: int
    end: int
    key: float
    below: tuple[Node, ...]


def balanced(keys: Sequence[float], first: int, end: int) -> Node:
    middle = (first + end) // 2
    below = () if end - first == 1 else (balanced(keys, first, middle), balanced(keys, middle, end))
    return Node(first, end, keys[middle], below)


def rows(sets: Sequence[Sequence[Interval]], edges: Sequence[tuple[int, int]]) -> list[Row]:
    return [row for row in product(*sets) if all(row[i][0] <= row[j][1] and row[j][0] <= row[i][1] for i, j in edges)]


def meets(row: Row, constraints: Sequence[Bounds]) -> bool:
    return all(left <= a and right >= b for (left, right), (a, b) in zip(row, constraints, strict=True))


def least(found: Sequence[Row]) -> Row | None:
    """The left-smallest."""
    return min(found, key=lambda row: [left for left, _ in row], default=None)


def min_ij(
    sets: Sequence[Sequence[Interval]], edges: Sequence[tuple[int, int]], constraints: Sequence[Bounds], reading: Reading,
    root: Node | None = None,
) -> Row | None:  # fmt: skip
    """`root`: of another tree on the same keys than the balanced one; the paper asks for no more than a search tree."""
    keys = sorted(end for some in sets for interval in some for end in interval)
    root = balanced(keys, 0, len(keys)) if root is None else root
    a, b = reading.a([a for a, _ in constraints]), reading.b([b for _, b in constraints])
    hinged: dict[Node, list[Row]] = {}
    for row in rows(sets, edges):
        hinged.setdefault(_hinge(root, row), []).append(row)
    ends = [bisect_left(keys, a) if reading.to_successor else bisect_right(keys, a) - 1, bisect_right(keys, b) - 1]
    on_paths = [node for at in ends if 0 <= at < len(keys) for node in _path(root, at)]
    found = [row for node in on_paths for row in hinged.get(node, []) if meets(row, constraints)]
    for node in _nodes(root):
        low, high = keys[node.first], keys[node.end] if node.end < len(keys) else inf
        if b <= low and high <= a and node in hinged:
            found.append(least(hinged[node]) or ())
    return least(found)


def _hinge(root: Node, row: Row) -> Node:
    """The highest of the nodes in whose stabbing sets its intervals are: they are on one path, or one is above all others."""
    homes = [_home(root, interval) for interval in row]
    return max(homes, key=lambda node: node.end - node.first)


def _home(node: Node, interval: Interval) -> Node:
    while not interval[0] <= node.key <= interval[1]:
        node = node.below[interval[0] > node.key]
    return node


def _path(root: Node, at: int) -> list[Node]:
    found = [root]
    while found[-1].below:
        found.append(next(node for node in found[-1].below if node.first <= at < node.end))
    return found


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for one in node.below:
        yield from _nodes(one)
