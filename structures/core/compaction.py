"""Compaction of a store of blocks: which chunks should become empty, and whether there is anything to do (`blocks.py`).

A block that is never written stays in place and keeps its chunk. So when a class has many more free blocks than it needs, its chunks from
a FRONT on are to be emptied: the trees copy what they have there, a few leaves with each change (their rooms have a module of this name).

Costs: O(1) but for `find_fronts`, O(chunks) where something is to be emptied.
"""

from __future__ import annotations

from typing import Any

from structures.core.control import (
    CAPACITY,
    CLASS,
    CREDIT,
    FRONT,
    KINDS,
    LISTED,
    LOOKED,
    NEED,
    NEXT_CHUNK,
    OUT,
    SHIFT,
    SPARSE,
    SWEPT,
    chunk_at,
    class_at,
    room,
)
from structures.core.kernel import kernel, wide

LOOKED_AT = 2  # leaves with each change, by compaction
AT_ONCE = 16  # leaves at least: neighbours share the copies of their path
NOWHERE = 2**62  # in place of a FRONT


@kernel
def is_behind(C: Any, o: int, cls: int) -> bool:
    """Whether block o, of the class, lies in a chunk that is to be emptied. A copy does not, as long as the chunks before have room."""
    return o >= C[class_at(cls) + FRONT]


@kernel
def find_fronts(C: Any) -> None:
    """Have the last chunks of each class emptied that has a sixteenth more blocks than it needs, and than compaction could not bring
    together the last time. O(chunks) then."""
    for cls in range(C[KINDS]):
        k = class_at(cls)
        needed = C[k + OUT] + C[k + NEED]
        C[k + SWEPT] = min(C[k + SWEPT], C[k + LISTED])
        if C[k + LISTED] > max(C[k + NEED], C[k + SWEPT]) + C[k + OUT] // 16 + 2 * C[k + CAPACITY]:
            left = (needed + needed // 32) // C[k + CAPACITY] + 1  # chunks that stay
            for chunk in range(1, C[NEXT_CHUNK]):
                left -= C[chunk_at(C, chunk) + CLASS] == cls + 1
                if left < 0:
                    C[k + FRONT] = chunk << C[SHIFT]
                    C[SPARSE] = 1
                    break


@kernel
def end_compaction(C: Any) -> None:
    """The trees have nothing more in the chunks that were to be emptied; or enough was looked for."""
    C[SPARSE], C[CREDIT], C[LOOKED] = 0, 0, 0
    for cls in range(C[KINDS]):
        C[class_at(cls) + FRONT], C[class_at(cls) + SWEPT] = NOWHERE, C[class_at(cls) + LISTED]


@kernel
def has_looked_at(C: Any, blocks: int) -> None:
    """Compaction beside changes has looked at so many more: it ends when it has, some more often than others, looked at four times as many
    as there are."""
    C[LOOKED] += blocks
    total = wide(0)
    for cls in range(C[KINDS]):
        total += C[class_at(cls) + OUT]
    if C[LOOKED] > 4 * total:
        end_compaction(C)


@kernel
def earn(C: Any, leaves: int) -> bool:
    """So many leaves more may be looked at; whether it is time to."""
    C[CREDIT] += leaves
    return C[CREDIT] >= AT_ONCE


@kernel
def may_compact(C: Any, words: int) -> bool:
    """Whether there is something to compact, credit to look for it, and room for copies of so many words."""
    if C[SPARSE] == 0 or C[CREDIT] <= 0:
        return False
    if room(C) < words:
        C[CREDIT] = min(C[CREDIT], AT_ONCE)  # what was not done is not made up for at once
        return False
    return True
