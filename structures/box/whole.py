"""Operations on a whole structure: read all of its boxes, drop all of its blocks. Costs: O(n), and O(blocks)."""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.box import layout
from structures.box.balance import OF_EITHER, drop_tree, gather
from structures.box.build import plant
from structures.box.layout import no_room, root_of
from structures.box.records import code_of, key_of
from structures.core.blocks import Nodes, Writing
from structures.core.entries import Entries
from structures.core.kernel import kernel


@kernel("void(Nodes, Writing)", allocates=True)
def clear(nodes: Nodes, writing: Writing) -> None:
    """Remove all boxes; if there is no room for an empty tree, do nothing but set FULL. O(blocks)."""
    C = writing.C
    if no_room(C, 0):
        return
    drop_tree(nodes, writing, 0, layout.TOP)
    C[layout.LONGEST : layout.CONTROL_END] = 0
    plant(nodes, writing)


@kernel("void(Nodes, int64[::1], Entries)", allocates=True)
def read_all(nodes: Nodes, C: Any, into: Entries) -> None:
    """Copy all boxes to `into`, which has room for exactly these; left, right: flat, with the dimensions of a box side by side. O(n)."""
    LO, HI, TAGS, _, _, n = gather(nodes, C, 0, root_of(nodes.W, layout.TOP), OF_EITHER, np.zeros(0, np.int64))
    for i in range(n):
        code = code_of(TAGS[i])
        into.set[i], into.key[i], into.slot[i] = code & 1, key_of(TAGS[i]), code >> 1
    into.left[:], into.right[:] = LO[: len(into.left)], HI[: len(into.right)]
