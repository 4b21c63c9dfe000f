"""Proof that an arena loses no block, for tests: slow, plain Python."""

from __future__ import annotations

import numpy as np

from structures.core.arena import ALLOCATED, INNER, LEAF, RETIRED, Arena


def check_blocks(arena: Arena, seen: dict[int, int]) -> None:
    """Prove I3 of the arena; `seen`: the class of every block that a root in use reaches."""
    leaves, inners, retired = arena.free_and_retired()
    free = set(leaves) | set(inners)
    assert len(free) == len(leaves) + len(inners), "a block lies on the free lists twice"
    assert not free & set(seen), "a block in use is free"
    assert not free & set(retired), "a retired block is free"
    assert len(set(retired)) == len(retired), "a block is retired twice"
    used = set(seen) | set(retired)
    for cls in (LEAF, INNER):
        allocated = int(arena.C[ALLOCATED + cls])
        have = sum(1 for o in used if (seen[o] if o in seen else _class(arena, o)) == cls)
        assert allocated == have, f"I3 of the arena: {allocated} blocks of class {cls} are out, {have} are reachable or retired"


def _class(arena: Arena, o: int) -> int:
    blocks = arena.Q[: 2 * int(arena.C[RETIRED]) : 2]
    return int(blocks[np.flatnonzero(blocks >> 1 == o)[0]]) & 1
