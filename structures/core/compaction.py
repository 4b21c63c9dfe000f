"""Compaction of a store of blocks: which chunks should become empty, and whether there is anything to do (`blocks.py`).

A block that is never written stays in place and keeps its chunk. So when a class has many more free blocks than it needs, its chunks from
a FRONT on are to be emptied: the trees copy what they have there, a few leaves with each change (their rooms have a module of this name).

Costs: O(1) but for `find_fronts`, O(chunks) where something is to be emptied.
"""

from __future__ import annotations

from typing import Any

from structures.core import control
from structures.core.control import chunk_at, class_at, room
from structures.core.kernel import kernel, wide

AT_ONCE = 16  # least leaves of a step: neighbours share the copies of their path
NOWHERE = 2**62  # in place of a FRONT


def leaves_beside(changes: int) -> int:
    """Return how many leaves compaction visits beside so many changes: two for each, but a half for each beyond 1,000. Seen before: while a
    tree was compacted, batches of 2,000 moves took a fifth longer."""
    return min(2 * changes, 1500 + changes // 2)


@kernel
def is_behind(C: Any, o: int, cls: int) -> bool:
    """Return whether block o of the class lies in a chunk that is to be emptied. A copy does not, as long as the chunks before it have
    room."""
    return o >= C[class_at(cls) + control.FRONT]


@kernel
def has_much_to_spare(C: Any) -> bool:
    """Return whether the blocks that are free beyond the need, and beyond what compaction could not bring together the last time, take more
    than a thirty-second of the memory of all others. Less is not worth the copies, nor memory that no cache holds."""
    spare, used = wide(0), wide(0)
    for cls in range(C[control.KINDS]):
        k = class_at(cls)
        spare += C[k + control.SIZE] * max(C[k + control.LISTED] - max(C[k + control.NEED], C[k + control.SWEPT]), 0)
        used += C[k + control.SIZE] * C[k + control.OUT]
    return spare > used // 32


@kernel
def find_fronts(C: Any) -> None:
    """If there is much to spare, have the last chunks emptied of each class that has a sixteenth more blocks than it needs, not counting
    those that compaction could not bring together the last time. O(chunks) then."""
    for cls in range(C[control.KINDS]):
        k = class_at(cls)
        C[k + control.SWEPT] = min(C[k + control.SWEPT], C[k + control.LISTED])
    for cls in range(C[control.KINDS] if has_much_to_spare(C) else 0):
        k = class_at(cls)
        needed = C[k + control.OUT] + C[k + control.NEED]
        if C[k + control.LISTED] > max(C[k + control.NEED], C[k + control.SWEPT]) + C[k + control.OUT] // 16 + 2 * C[k + control.CAPACITY]:
            left = (needed + needed // 32) // C[k + control.CAPACITY] + 1  # chunks that stay
            for chunk in range(1, C[control.NEXT_CHUNK]):
                left -= C[chunk_at(C, chunk) + control.CLASS] == cls + 1
                if left < 0:
                    C[k + control.FRONT] = chunk << C[control.SHIFT]
                    C[control.SPARSE] = 1
                    break


@kernel
def end_compaction(C: Any) -> None:
    """End the compaction: the trees have nothing more in the chunks that were to be emptied, or enough was visited."""
    C[control.SPARSE], C[control.CREDIT], C[control.LOOKED] = 0, 0, 0
    for cls in range(C[control.KINDS]):
        C[class_at(cls) + control.FRONT], C[class_at(cls) + control.SWEPT] = NOWHERE, C[class_at(cls) + control.LISTED]


@kernel
def has_looked_at(C: Any, blocks: int) -> None:
    """Note that compaction beside changes has visited `blocks` more blocks. It ends when it has visited four times as many as there are,
    some of them more often than others."""
    C[control.LOOKED] += blocks
    total = wide(0)
    for cls in range(C[control.KINDS]):
        total += C[class_at(cls) + control.OUT]
    if C[control.LOOKED] > 4 * total:
        end_compaction(C)


@kernel
def earn(C: Any, leaves: int) -> bool:
    """Add credit to visit `leaves` more leaves. Returns whether it is time to do so."""
    C[control.CREDIT] += leaves
    return C[control.CREDIT] >= AT_ONCE


@kernel
def may_compact(C: Any, words: int) -> bool:
    """Return whether there is something to compact, credit to search for it, and room for copies of `words` words."""
    if C[control.SPARSE] == 0 or C[control.CREDIT] <= 0:
        return False
    if room(C) < words:
        C[control.CREDIT] = min(C[control.CREDIT], AT_ONCE)  # unused credit is limited
        return False
    return True
