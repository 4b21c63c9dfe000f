"""Proof of the quadtrees' invariants (`quad_nodes.py`), for tests: slow, plain Python, independent of the writing code."""

from __future__ import annotations

from structures.quad_nodes import CODE_BITS, FREE, LEAF, LEAF_MARK, LOW, OUT, RETIRED, QuadArena

Entry = tuple[int, ...]


def _quadrant(entry: Entry, arity: int, first: int, level: int) -> int:
    if level >= 0:
        part = entry[first:-1] if level < CODE_BITS else entry[:first]
        return int("".join(str(coordinate >> level % CODE_BITS & 1) for coordinate in part), 2)
    levels = -(-CODE_BITS // arity)
    padded = f"{entry[-1]:0{levels * arity}b}"
    place = (-level - 1) * arity
    return int(padded[place : place + arity], 2)


def _entries(arena: QuadArena, o: int, shape: tuple[int, int], level: int, seen: dict[int, int]) -> list[Entry]:
    """Of the subtree at o, proven."""
    W, arity = arena.W, shape[0]
    count, mark = int(W[2 * o + 2]), int(W[2 * o + 3])
    seen[o] = 2 * (arity - 1) + (mark == LEAF_MARK)
    if mark == LEAF_MARK:
        assert 1 <= count <= LEAF, f"Q2: leaf {o} has {count} entries"
        return [tuple(W[2 * o + 4 + i : 2 * o + 4 + (arity + 1) * LEAF : LEAF].tolist()) for i in range(count)]
    found: list[Entry] = []
    for c in range(1 << arity):
        child = int(W[2 * o + 4 + c])
        assert (child != 0) == bool(mark >> c & 1), f"Q3: the mask of node {o} is wrong at child {c}"
        if child:
            below = _entries(arena, child, shape, level - 1, seen)
            assert all(_quadrant(entry, *shape, level) == c for entry in below), f"Q1: child {c} of node {o} has an entry of another"
            found += below
    assert len(found) == count > LOW, f"Q2: node {o} says {count} entries, and has {len(found)}"
    return found


def entries_of(arena: QuadArena, root: tuple[int, int, int], shape: tuple[int, int], seen: dict[int, int]) -> list[Entry]:
    """All of one version of a tree, its invariants proven."""
    offset, bits, count = root
    found = _entries(arena, offset, shape, bits - 1 + (CODE_BITS if shape[1] else 0), seen) if offset else []
    assert len(found) == count, f"Q2: a root says {count} entries, and has {len(found)}"
    assert len(set(found)) == count, "Q1: an entry is there twice"
    assert all(0 <= coordinate < 1 << bits for entry in found for coordinate in entry[:-1]), "Q1: a coordinate is out of reach"
    return found


def check_quads(arena: QuadArena, shapes: tuple[tuple[int, int], ...], roots: tuple[tuple[tuple[int, int, int], ...], ...]) -> None:
    """Prove Q1 to Q3 of these versions, and I3 when all roots in use are given."""
    seen: dict[int, int] = {}
    for version in roots:
        for root, shape in zip(version, shapes, strict=True):
            entries_of(arena, root, shape, seen)
    retired = {int(q) >> 3: int(q) & 7 for q in arena.Q[: 2 * int(arena.C[RETIRED]) : 2]}
    free: set[int] = set()
    for cls in range(8):
        o = int(arena.C[FREE + cls])
        while o:
            assert o not in free, f"block {o} lies on the free lists twice"
            free.add(o)
            o = int(arena.M[o])
    used = {**retired, **seen}
    assert not free & set(used), "a block in use or retired is free"
    for cls in range(8):
        have, out = sum(c == cls for c in used.values()), int(arena.C[OUT + cls])
        assert have == out, f"I3: {out} blocks of class {cls} are out, {have} are reachable or retired"
