"""Checks of the ordered indexes' invariants (`changes.py`), for tests: slow, plain Python, independent of the writing code."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from structures.core.arena import LEAF
from structures.core.check import check_blocks
from structures.index.layout import BLOCK, COUNT, HEAD, INNER_ROOM, LEAF_ROOM, LEVEL, IndexArena

Entry = tuple[int, ...]


def _items(arena: IndexArena, o: int, arity: int) -> tuple[int, list[Entry]]:
    """The level of a block, and for each of its items the coordinates, the slot and, in an inner node, child and count."""
    count, level = (int(arena.W[2 * o + word]) for word in (COUNT, LEVEL))
    room = int(INNER_ROOM[arity] if level else LEAF_ROOM[arity])
    columns = [arena.M[o + HEAD + j * room :][:count] for j in range(arity)]
    first = 2 * (o + HEAD + arity * room)
    columns += [arena.W[first + j * room :][:count] for j in range(3 if level else 1)]
    assert first + (3 if level else 1) * room <= 2 * (o + BLOCK)
    return level, list(zip(*(column.tolist() for column in columns), strict=True))


def entries_of(arena: IndexArena, arity: int, o: int, top: bool, seen: dict[int, int]) -> list[Entry]:
    """The entries of the subtree at o, which is proven: coordinates and slot, in order."""
    seen[o] = LEAF
    level, items = _items(arena, o, arity)
    if level == 0:
        assert len(items) >= (1 if top else max(1, LEAF_ROOM[arity] // 4)), f"X3: leaf {o} has {len(items)} entries"
        assert len(items) <= LEAF_ROOM[arity], f"X3: leaf {o} has {len(items)} entries"
        return items
    assert (2 if top else max(2, INNER_ROOM[arity] // 4)) <= len(items) <= INNER_ROOM[arity], f"X3: node {o} has {len(items)} children"
    found: list[Entry] = []
    for c, item in enumerate(items):
        block, count = item[arity + 1 :]
        child = BLOCK * block
        assert int(arena.W[2 * child + LEVEL]) == level - 1, f"X2: child {c} of node {o} is of another level"
        below = entries_of(arena, arity, child, False, seen)
        assert len(below) == count, f"X2: node {o} says {count} entries below child {c}, there are {len(below)}"
        assert not found or found[-1] < item[: arity + 1] <= below[0], f"X1: the separator of child {c} of node {o} is not between"
        found += below
    return found


def check_indexes(arena: IndexArena, trees: Sequence[tuple[int, int]], leaving: Sequence[tuple[int, np.ndarray]] = ()) -> None:
    """Prove X1 to X3 of these trees (arity, root), and I3 when all in use are given. `leaving`: arities and paths of trees that are partly
    dropped (`changes.drop_on`)."""
    seen: dict[int, int] = {}
    for arity, way in leaving:
        for o, c in way[1 : 1 + 2 * int(way[0])].reshape(-1, 2).tolist():
            level, items = _items(arena, o, arity)
            for item in items[c:] if level else ():
                entries_of(arena, arity, BLOCK * item[arity + 1], False, seen)
            seen[o] = LEAF
    for arity, root in trees:
        entries = entries_of(arena, arity, root, True, seen) if root else []
        assert all(one < other for one, other in zip(entries, entries[1:], strict=False)), "X1: entries do not ascend"
    check_blocks(arena, seen)
