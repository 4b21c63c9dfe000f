"""The control array C of a store of blocks (`blocks.py`): its words, and the maps of chunks that lie in it.

    C | counters | classes | hints | what trees keep | maps: a bit a chunk, for each class | table of chunks | two tables of pins |

Costs: O(1), but for `first_in_map`, O(chunks / 63), and `room`, O(classes).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.core.bits import lowest
from structures.core.kernel import kernel, wide
from structures.core.reserve import MEMORY

CLASSES = 16  # of blocks
EMPTY, IDLE_MAP = CLASSES, CLASSES + 1  # maps of chunks without blocks, and of those among them whose pages are still allocated
STORE_WORDS = min(max(2**31, MEMORY // 8), 2**33)  # of a store by default: what memory can fill, within the reach of `block_at`
LEAST_BLOCKS = 8  # of a chunk

# The control array C: where its parts begin, and counters; then the classes, and where to search first in each map. The words of the trees
# lie between KEPT and the maps.
VERSION, SHIFT, CHUNKS, NEXT_CHUNK, KINDS, TABLE, MAPS, PIN_TABLES = range(8)  # KINDS: classes in use
RECORDS, SPARE, QUEUE, LAST, HELD, INPUT, UNUSED, IDLE = range(8, 16)  # UNUSED: chunks without blocks; IDLE: of these with pages
RECORDS_MOST, RECORDS_NEED = 16, 17  # records whose pages are allocated, and those that were in use recently
SPARE_PAGES = 18  # whether pages of empty chunks are to be returned (1), and of records (2)
DELETED, UNDER_WAY = 19, 20  # released pins whose records are still to be settled; whether a reclaim is in progress
BY_CLASS, CLASS_WORDS = 24, 16
# Words of a class: words of a block, blocks of a chunk, the stash and its length, the fresh places; blocks that are in use or retired,
# those that are retired, those on the lists of chunks; the most blocks that were recently taken between two reclaims, OUT after the last
# one; the most blocks of the stash that the current reclaim puts back before it frees others, because nobody needed them, and the most
# after that.
SIZE, CAPACITY, STASH, STASHED, FRESH, END, OUT, WAITING, LISTED, NEED, OUT_BEFORE, UNNEEDED, SPREAD = range(13)
HINTS = BY_CLASS + CLASS_WORDS * CLASSES
KEPT = HINTS + CLASSES + 2
# A retired block's record in Q: the block and its class (`CLASSES`), the version that retired it, the next record.
BLOCK, RETIRED, NEXT, RECORD_WORDS = range(4)
# A pin in a table of pins: its version, and the first of the records that wait with it.
PIN, WAITS, PIN_WORDS = range(3)
# A chunk in the table: its class + 1, blocks that are not on its list, the first one on it; a word is spare, so that none spans two lines.
CLASS, USED, FREE, CHUNK_WORDS = 0, 1, 2, 4


@kernel
def chunk_at(C: Any, chunk: int) -> int:
    """Return where the chunk lies in C."""
    return C[TABLE] + CHUNK_WORDS * chunk


@kernel
def class_at(cls: int) -> int:
    """Return where the class lies in C."""
    return BY_CLASS + CLASS_WORDS * cls


@kernel
def words_of(C: Any, cls: int) -> int:
    """Return the words of a block of the class."""
    return C[class_at(cls) + SIZE]


@kernel
def record_at(r: int) -> int:
    """Return where record r lies in Q."""
    return RECORD_WORDS * r


@kernel
def pin_at(table: int, i: int) -> int:
    """Return where pin i of a table lies in C."""
    return table + PIN_WORDS * i


# --- maps: a bit a chunk, of each class


@kernel
def words_of_map(C: Any) -> int:
    return (C[CHUNKS] + 62) // 63  # 63 bits a word: none is its sign


@kernel
def add_to_map(C: Any, cls: int, chunk: int) -> None:
    word = chunk // 63
    C[C[MAPS] + cls * words_of_map(C) + word] |= wide(1) << (chunk % 63)
    C[HINTS + cls] = min(C[HINTS + cls], word)


@kernel
def take_from_map(C: Any, cls: int, chunk: int) -> None:
    C[C[MAPS] + cls * words_of_map(C) + chunk // 63] &= ~(wide(1) << (chunk % 63))


@kernel
def is_in_map(C: Any, cls: int, chunk: int) -> bool:
    return (C[C[MAPS] + cls * words_of_map(C) + chunk // 63] >> (chunk % 63)) & 1 != 0


@kernel
def first_in_map(C: Any, cls: int) -> int:
    """Return the first chunk in the class's map; 0: there is none."""
    at, end, word = C[MAPS] + cls * words_of_map(C), (C[NEXT_CHUNK] + 62) // 63, C[HINTS + cls]
    while word < end and C[at + word] == 0:
        word += 1
    if word >= end:
        return 0
    C[HINTS + cls] = word
    return 63 * word + lowest(C[at + word])


def chunks_in(words: np.ndarray) -> list[int]:
    """Return the chunks in a map, ascending."""
    return [63 * position + bit for position in np.flatnonzero(words).tolist() for bit in range(63) if words.item(position) >> bit & 1]


# --- room


@kernel
def empty_room(C: Any) -> int:
    """Return the words that surely fit into chunks without blocks, in blocks of any class."""
    chunks = max(0, C[CHUNKS] - C[NEXT_CHUNK] + C[UNUSED] - C[KINDS])  # of each class one may be used in part
    return (chunks << C[SHIFT]) * (LEAST_BLOCKS - 1) // LEAST_BLOCKS


@kernel
def room(C: Any) -> int:
    """Return the words that surely fit, in blocks of any class: in empty chunks, and in free blocks of the class that has the fewest."""
    least = wide(2**62)
    for cls in range(C[KINDS]):
        k = class_at(cls)
        least = min(least, (C[k + STASHED] + C[k + LISTED]) * C[k + SIZE] + C[k + END] - C[k + FRESH])
    return empty_room(C) + least
