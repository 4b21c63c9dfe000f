"""The blocks of persistent trees, in one reserved array.

Problem: keep the nodes of trees that many versions share, where a writer replaces nodes and readers of pinned versions keep using the old
ones, without locks and without moving anything; and give memory back when it is no longer used.

    M       | chunk 0: NIL | chunk 1: leaves | chunk 2: inner nodes | chunk 3: leaves | empty | …      int64, reserved address space
    W       the same memory as int32
    chunk   | block | block | free -> | block | free -> NIL |      blocks of one class, all of one size
    block   M[o] born: the version that wrote it | what else lies in it is its tree's matter; a free one: M[o] the next free one
    class   stash: free -> free -> … -> NIL, whatever their chunks      fresh: the places of a chunk that were never used

The block freed last is used first, because it may still be in the processor's caches: free blocks are stacked in the class's stash. Blocks
not taken from there between two reclaims go to the lists of the chunks. When stash and fresh places are used up, the list of the
first chunk of the class that has one becomes the stash, else the first empty chunk's places are the fresh ones. While much lies on these
lists, all that is freed goes there: so what is written anew moves to the front, and the chunks behind it become empty. Their pages go back
to the system.

Retired blocks are records (block and class, retired, next). A record waits in the queue of all until its version is old enough; then the
block is free, or waits with the oldest pin that holds it, until that goes.

    queue   retired 41 -> 42 -> 42 -> 45          held   pin 17: -> -> ->     pin 30: ->

A store of which less than half is in use says so (`is_outgrown`): its owner copies the newest version to another.

Invariants
    I1  a block with born == the version being written was never published: it is changed in place and freed at once; every other block is
        copied and retired
    I2  a retired block [born, retired) is reused only when retired <= the oldest version that can still be pinned and no pin p has
        born <= p < retired
    I3  a block of a chunk is reachable from the roots in use, retired, in the stash, fresh, or on the chunk's list, and only one of these
    I4  a chunk with a list is in its class's map, an empty one in the map of these, and no other chunk is in any

Costs: allocate, free, retire O(1), the next chunk O(chunks / 63) at worst; reclaim O((what is due + what the pins held that have gone) *
log pins + pins + blocks put back), in as many pieces as the caller wants. When memory is given back, the system may keep a part of a large
page for a while.
Source: LMDB's model (docs/design/versions.md); Bonwick's slab allocator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from structures.core import control
from structures.core.bits import LANES
from structures.core.control import (
    add_to_map,
    chunk_at,
    chunks_in,
    class_at,
    first_in_map,
    is_in_map,
    pin_at,
    record_at,
    room,
    take_from_map,
    words_of_map,
)
from structures.core.kernel import arrays, compiled, kernel, prefetch, wide
from structures.core.pins import holder
from structures.core.reserve import give_back, reserve

_IDLE_MOST = 16  # chunks without blocks that may keep their pages, besides twice as many as were needed recently
_CHUNK_BITS, _FEWEST = 13, 6  # a chunk has 2**13 words, 64 KiB; of a small store fewer, of one with large blocks more
_PINS = 1 << 22  # most pins that hold blocks, and half as many that were released
ALL_BLOCKS = 2**62  # the limit of a reclaim that frees all
_FEW_RECORDS = 1 << 14  # records whose pages are kept
_WORTH = 4 << 20  # bytes for which a store is not copied
# Free blocks of a class that may be spare, besides one for 64 in use or retired; blocks of a stash that a reclaim puts back.
_SPARE, _PUT_BACK = 64, 1 << 14


@arrays("int64[::1]", "int32[::1]")
class Nodes(NamedTuple):
    """The memory of the blocks: as 64-bit words, and the same as 32-bit words."""

    M: np.ndarray
    W: np.ndarray


@arrays("int64[::1]", "int64[::1]")
class WriteState(NamedTuple):
    """The other arrays of the one writer: the control array, and the records of retired blocks."""

    C: np.ndarray
    Q: np.ndarray


@kernel
def refill(C: Any, cls: int) -> None:
    """Give the class, whose stash and fresh places are used up, those of the first chunk that has some."""
    k = class_at(cls)
    chunk = first_in_map(C, cls)
    if chunk != 0:
        take_from_map(C, cls, chunk)
        c = chunk_at(C, chunk)
        C[k + control.STASH], C[k + control.STASHED] = C[c + control.FREE], C[k + control.CAPACITY] - C[c + control.USED]
        C[k + control.LISTED] -= C[k + control.STASHED]
    else:
        chunk = first_in_map(C, control.EMPTY)
        if chunk != 0:
            take_from_map(C, control.EMPTY, chunk)
            C[control.UNUSED] -= 1
            if is_in_map(C, control.IDLE_MAP, chunk):
                take_from_map(C, control.IDLE_MAP, chunk)
                C[control.IDLE] -= 1
        else:
            chunk = C[control.NEXT_CHUNK]
            C[control.NEXT_CHUNK] += 1
        c = chunk_at(C, chunk)
        C[c + control.CLASS] = cls + 1
        C[k + control.FRESH] = chunk << C[control.SHIFT]
        C[k + control.END] = C[k + control.FRESH] + C[k + control.CAPACITY] * C[k + control.SIZE]
    C[c + control.USED], C[c + control.FREE] = C[k + control.CAPACITY], 0


@kernel(forceinline=True)
def allocate(M: Any, C: Any, cls: int) -> int:
    """Return a block of the class, born now; its contents are undefined. `Blocks.require_words` has ensured that there is one."""
    k = class_at(cls)
    if C[k + control.STASH] == 0 and C[k + control.FRESH] == C[k + control.END]:
        refill(C, cls)
    o = C[k + control.STASH]
    if o != 0:
        C[k + control.STASH] = M[o]
        C[k + control.STASHED] -= 1
    else:
        o = C[k + control.FRESH]
        C[k + control.FRESH] = o + C[k + control.SIZE]
    C[k + control.OUT] += 1
    M[o] = C[control.VERSION]
    return o


@kernel
def block_at(W: Any, i: int) -> int:
    """Return the block that word i of W refers to, as half its place, unsigned. Blocks of such trees have even sizes."""
    return (wide(W[i]) & 0xFFFFFFFF) << 1


@kernel
def name_block(W: Any, i: int, o: int) -> None:
    """Make word i of W refer to block o."""
    W[i] = o >> 1


@kernel
def next_free(C: Any, cls: int) -> int:
    """Return the block that the next allocation of the class will take, if it was in use before; otherwise 0."""
    return C[class_at(cls) + control.STASH]


@kernel
def put_on_list(M: Any, C: Any, o: int, cls: int) -> None:
    """Put a free block of the class on its chunk's list."""
    k, chunk = class_at(cls), o >> C[control.SHIFT]
    c = chunk_at(C, chunk)
    if C[c + control.FREE] == 0:
        add_to_map(C, cls, chunk)
    M[o] = C[c + control.FREE]
    C[c + control.FREE] = o
    C[c + control.USED] -= 1
    C[k + control.LISTED] += 1
    if C[c + control.USED] == 0:
        C[k + control.LISTED] -= C[k + control.CAPACITY]
        take_from_map(C, cls, chunk)
        C[c + control.CLASS] = 0
        add_to_map(C, control.EMPTY, chunk)
        add_to_map(C, control.IDLE_MAP, chunk)
        C[control.UNUSED] += 1
        C[control.IDLE] += 1


@kernel(forceinline=True)
def free(M: Any, C: Any, o: int, cls: int) -> None:
    """Free block o of the class, which nobody uses any more: put it into the stash."""
    k = class_at(cls)
    C[k + control.OUT] -= 1
    C[k + control.STASHED] += 1
    M[o] = C[k + control.STASH]
    C[k + control.STASH] = o


@kernel
def put_back(M: Any, C: Any, cls: int, planned: int, most: int) -> int:
    """Move blocks from the stash of the class to the lists of their chunks: as many as word `planned` of the class says, or `most`, or all.
    Returns how many more may be moved then."""
    k = class_at(cls)
    if most <= 0:
        return most
    C[k + planned] = min(C[k + planned], C[k + control.STASHED])
    count = min(C[k + planned], most)
    C[k + planned] -= count
    for _ in range(count):
        o = C[k + control.STASH]
        C[k + control.STASH] = M[o]
        C[k + control.STASHED] -= 1
        put_on_list(M, C, o, cls)
    return most - count


@kernel
def drop(M: Any, writing: WriteState, o: int, cls: int) -> None:
    """Drop block o of the class, which the newest version no longer uses: free it if nobody can have seen it (I1), otherwise retire it."""
    C, Q = writing.C, writing.Q
    if M[o] == C[control.VERSION]:
        free(M, C, o, cls)
        return
    r = C[control.SPARE]
    if r != 0:
        C[control.SPARE] = Q[record_at(r) + control.NEXT]
        prefetch(Q, record_at(C[control.SPARE]))  # spare records lie anywhere
    else:
        r = C[control.RECORDS]
        C[control.RECORDS] = r + 1
    at = record_at(r)
    Q[at + control.BLOCK], Q[at + control.RETIRED], Q[at + control.NEXT] = o * control.CLASSES + cls, C[control.VERSION], 0
    if C[control.QUEUE] == 0:
        C[control.QUEUE] = r
    else:
        Q[record_at(C[control.LAST]) + control.NEXT] = r
    C[control.LAST] = r
    C[class_at(cls) + control.WAITING] += 1


@kernel
def moved(M: Any, writing: WriteState, o: int, cls: int, words: int) -> int:
    """Return a copy, born now, that replaces block o of the class, which has `words` words."""
    new = allocate(M, writing.C, cls)
    source, target = np.uint64(o), np.uint64(new)  # unsigned places need no check of their sign, so that this is vectorised
    for i in range(np.uint64(1), np.uint64(words)):
        M[target + i] = M[source + i]
    drop(M, writing, o, cls)
    return new


@kernel
def open_position(words: Any, at: int, end: int) -> None:
    """Move the words [at, end) of an array one place to the right; vectorised, as in `moved`."""
    for i in range(end, at, -1):
        words[np.uint64(i)] = words[np.uint64(i - 1)]


@kernel
def close_position(words: Any, at: int, end: int) -> None:
    """Move the words [at + 1, end) of an array one place to the left, over the one at `at`; vectorised."""
    for i in range(np.uint64(at + 1), np.uint64(end)):
        words[i - np.uint64(1)] = words[i]


@kernel
def settle(M: Any, writing: WriteState, r: int, table: int, pins: Any) -> int:
    """Free the block of record r, whose version is old enough, or move the record to a pin of the table that holds the block. Returns the
    next record."""
    C, Q = writing.C, writing.Q
    at = record_at(r)
    o, cls, after = Q[at + control.BLOCK] // control.CLASSES, Q[at + control.BLOCK] % control.CLASSES, Q[at + control.NEXT]
    i = holder(pins, M[o], Q[at + control.RETIRED])
    if i >= 0:
        Q[at + control.NEXT] = C[pin_at(table, i) + control.WAITS]
        C[pin_at(table, i) + control.WAITS] = r
    else:
        C[class_at(cls) + control.WAITING] -= 1
        free(M, C, o, cls)
        Q[at + control.NEXT] = C[control.SPARE]
        C[control.SPARE] = r
    return after


@kernel
def pin_table(C: Any, input: int) -> int:
    """Return where one of the two tables of pins lies in C: pins, each with its first record."""
    return C[control.PIN_TABLES] + control.PIN_WORDS * _PINS * input


@kernel
def has_much_to_spare(C: Any) -> bool:
    """Return whether the blocks that are free beyond the need take more than a thirty-second of the memory of all others."""
    spare, used = wide(0), wide(0)
    for cls in range(C[control.KINDS]):
        k = class_at(cls)
        spare += C[k + control.SIZE] * max(C[k + control.LISTED] - C[k + control.NEED], 0)
        used += C[k + control.SIZE] * C[k + control.OUT]
    return spare > used // 32


@kernel
def tick(C: Any) -> None:
    """Begin a reclaim: update what each class needs, and plan which blocks to put back."""
    much = has_much_to_spare(C)
    C[control.RECORDS_MOST] = max(C[control.RECORDS_MOST], C[control.RECORDS])
    C[control.RECORDS_NEED] = max(C[control.RECORDS], C[control.RECORDS_NEED] - C[control.RECORDS_NEED] // 8)
    for cls in range(C[control.KINDS]):
        k = class_at(cls)
        taken = C[k + control.OUT] - C[k + control.OUT_BEFORE]
        # a need decreases by an eighth of the blocks taken since, or, if none were, by an eighth of itself
        C[k + control.NEED] = max(taken, C[k + control.NEED] - (taken // 8 if taken > 0 else (C[k + control.NEED] + 7) // 8))
        most = _SPARE + C[k + control.OUT] // 64  # of what nobody needed since the last time
        C[k + control.SPREAD] = _PUT_BACK if much and C[k + control.LISTED] > most else 0
        C[k + control.UNNEEDED] = _PUT_BACK if C[k + control.STASHED] > most else 0
    C[control.UNDER_WAY] = 1


@kernel("boolean(int64[::1], WriteState, int64, int64[::1], int64)")
def reclaim(M: Any, writing: WriteState, oldest: int, pins: Any, most: int) -> bool:
    """Free what no version >= oldest and no pin can see (I2), and put free blocks back on their lists: about `most` in all. Returns whether
    there is more. O((blocks visited) log pins + pins + chunks)."""
    C, Q, waiting, needed = writing.C, writing.Q, wide(0), wide(0)
    if C[control.UNDER_WAY] == 0:
        tick(C)
    for cls in range(C[control.KINDS]):
        most = put_back(M, C, cls, control.UNNEEDED, most)
    old, n, deleted, table = pin_table(C, C[control.INPUT]), C[control.HELD], C[control.DELETED], pin_table(C, 1 - C[control.INPUT])
    if n + deleted > 0 or len(pins) > 0:
        for i in range(len(pins)):
            C[pin_at(table, i)], C[pin_at(table, i) + control.WAITS] = pins[i], 0
        C[control.INPUT], C[control.HELD], C[control.DELETED] = 1 - C[control.INPUT], len(pins), 0
        i = 0
        for j in range(n):
            while i < len(pins) and pins[i] < C[pin_at(old, j)]:
                i += 1
            if i < len(pins) and pins[i] == C[pin_at(old, j)]:  # each pin occurs once
                C[pin_at(table, i) + control.WAITS] = C[pin_at(old, j) + control.WAITS]
                C[pin_at(old, j) + control.WAITS] = 0
        for j in range(n + deleted):
            r = C[pin_at(old, j) + control.WAITS]
            while r != 0 and most > 0:
                r = settle(M, writing, r, table, pins)
                most -= 1
            if r != 0:
                C[pin_at(table, len(pins) + C[control.DELETED]) + control.WAITS] = r
                C[control.DELETED] += 1
    while most > 0 and C[control.QUEUE] != 0 and Q[record_at(C[control.QUEUE]) + control.RETIRED] <= oldest:
        C[control.QUEUE] = settle(M, writing, C[control.QUEUE], table, pins)
        most -= 1
    for cls in range(C[control.KINDS]):  # new blocks come to the front
        most = put_back(M, C, cls, control.SPREAD, most)
    if most <= 0:
        return True
    for cls in range(C[control.KINDS]):
        C[class_at(cls) + control.OUT_BEFORE] = C[class_at(cls) + control.OUT]
        waiting += C[class_at(cls) + control.WAITING]
        needed += C[class_at(cls) + control.NEED] * C[class_at(cls) + control.SIZE]
    C[control.SPARE_PAGES] = C[control.IDLE] > _IDLE_MOST + (2 * needed >> C[control.SHIFT])
    if waiting == 0:
        C[control.RECORDS], C[control.SPARE] = 1, 0
        C[control.SPARE_PAGES] += 2 * (C[control.RECORDS_MOST] > 2 * C[control.RECORDS_NEED] + _FEW_RECORDS)
    C[control.UNDER_WAY] = 0
    return False


@kernel
def flip_list(M: Any, o: int) -> None:
    """Mark the blocks of a list as free, or remove the marks, by complementing the place of the next one: it is then below 0, which no
    version in a store that is undone is."""
    while o != 0:
        after = max(M[o], ~M[o])
        M[o] = ~M[o]
        o = after


@kernel
def flip_free(M: Any, C: Any) -> None:
    for cls in range(C[control.KINDS]):
        flip_list(M, C[class_at(cls) + control.STASH])
    for chunk in range(1, C[control.NEXT_CHUNK]):
        flip_list(M, C[chunk_at(C, chunk) + control.FREE])


@kernel("void(int64[::1], WriteState)")
def undo(M: Any, writing: WriteState) -> None:
    """Discard the version that is being written: blocks that it retired are in use again, blocks that it made are free. O(blocks)."""
    C, Q = writing.C, writing.Q
    last, r = wide(0), C[control.QUEUE]
    while r != 0 and Q[record_at(r) + control.RETIRED] < C[control.VERSION]:
        last, r = r, Q[record_at(r) + control.NEXT]
    if last != 0:
        Q[record_at(last) + control.NEXT] = 0
    else:
        C[control.QUEUE] = 0
    C[control.LAST] = last
    while r != 0:
        after = Q[record_at(r) + control.NEXT]
        C[class_at(Q[record_at(r) + control.BLOCK] % control.CLASSES) + control.WAITING] -= 1
        Q[record_at(r) + control.NEXT], C[control.SPARE] = C[control.SPARE], r
        r = after
    flip_free(M, C)
    made = wide(0)
    for chunk in range(1, C[control.NEXT_CHUNK]):
        cls, first = C[chunk_at(C, chunk) + control.CLASS] - 1, chunk << C[control.SHIFT]
        k = class_at(max(cls, 0))
        for i in range(C[k + control.CAPACITY] if cls >= 0 else 0):
            o = first + i * C[k + control.SIZE]
            if M[o] == C[control.VERSION] and not C[k + control.FRESH] <= o < C[k + control.END]:
                M[o], made = made, o
    flip_free(M, C)
    while made != 0:
        o, made = made, M[made]
        free(M, C, o, C[chunk_at(C, o >> C[control.SHIFT]) + control.CLASS] - 1)


class Blocks:
    """The arrays of one store. One thread writes; any number read blocks of pinned versions meanwhile."""

    def __init__(self, sizes: Sequence[int], kept: int = 0, words: int = control.STORE_WORDS) -> None:
        """`sizes`: words of a block of each class; `kept`: words of C that the trees keep, from KEPT on; `words`: reserved address space in
        8-byte words (not memory)."""
        bits = _CHUNK_BITS
        while bits > _FEWEST and words >> bits < 4 * len(sizes) * control.LEAST_BLOCKS:
            bits -= 1
        bits = max(bits, (max(sizes) * control.LEAST_BLOCKS - 1).bit_length())
        chunks = max(len(sizes) + 2, words >> bits)
        size = chunks << bits
        self._most_chunks, self._half = chunks - len(sizes), bits - 1
        self.M: np.ndarray = reserve((size + 2 * LANES) * 8, np.int64)[:size]  # the last block is read eight numbers at once
        self.W: np.ndarray = self.M.view(np.int32)
        maps = control.KEPT + kept
        table = maps + (control.CLASSES + 2) * ((chunks + 62) // 63)
        pins = table + control.CHUNK_WORDS * chunks
        self.C: np.ndarray = reserve((pins + 2 * control.PIN_WORDS * _PINS) * 8, np.int64)
        self.Q: np.ndarray = reserve(record_at(size // min(sizes) + 2) * 8, np.int64)  # each block may wait; record 0 is NIL
        C = self.C
        C[control.SHIFT], C[control.CHUNKS], C[control.NEXT_CHUNK], C[control.RECORDS] = bits, chunks, 1, 1
        C[control.MAPS], C[control.TABLE], C[control.PIN_TABLES] = maps, table, pins
        C[control.KINDS], C[control.HINTS : control.HINTS + control.CLASSES + 2] = len(sizes), chunks
        self.classes: np.ndarray = C[control.BY_CLASS:control.HINTS].reshape(control.CLASSES, control.CLASS_WORDS)
        self.classes[: len(sizes), control.SIZE] = sizes
        self.classes[: len(sizes), control.CAPACITY] = [(1 << bits) // words for words in sizes]
        self.nodes: Any = Nodes(self.M, self.W)  # as the kernels take them; of a class that adds arrays another tuple
        self.writing: Any = WriteState(self.C, self.Q)

    def reclaim(self, oldest: int, pins: np.ndarray, most: int = ALL_BLOCKS) -> bool:
        """See I2. `pins`: ascending int64, each once. At most about `most` blocks are freed. Returns whether there may be more: the next
        call, with the pins of that time, continues. Raises MemoryError if there are too many pins."""
        if len(pins) + self.C.item(control.HELD) + self.C.item(control.DELETED) > _PINS:
            raise MemoryError(f"{len(pins)} pins hold versions of one structure; {_PINS // 2} may")
        if compiled(reclaim)(self.M, self.writing, oldest, pins, most):
            return True
        if self.C.item(control.SPARE_PAGES) & 1:
            self._give_back()
        if self.C.item(control.SPARE_PAGES) & 2:
            need = self.C.item(control.RECORDS_NEED)
            give_back(self.Q, record_at(need), record_at(self.C.item(control.RECORDS_MOST)))
            self.C[control.RECORDS_MOST] = need
        return False

    def undo(self) -> None:
        """Discard the version that is being written; the trees take the roots of the previous one. O(blocks)."""
        compiled(undo)(self.M, self.writing)

    def _give_back(self) -> None:
        """Return the pages of chunks without blocks to the system. O(chunks / 63), and a system call for each stretch of such chunks."""
        bits, idle = self.C.item(control.SHIFT), self.map_of(control.IDLE_MAP)
        chunks = np.array(chunks_in(idle))
        for stretch in np.split(chunks, np.flatnonzero(np.diff(chunks) > 1) + 1):
            give_back(self.M, stretch.item(0) << bits, (stretch.item(-1) + 1) << bits)
        idle[np.flatnonzero(idle)] = 0  # writing the others would allocate their pages
        self.C[control.IDLE] = 0

    def map_of(self, cls: int) -> np.ndarray:
        """Return the words of the map of a class, of EMPTY or of IDLE_MAP: see `chunks_in`."""
        words = int(words_of_map(self.C))
        return self.C[self.C.item(control.MAPS) + cls * words :][:words]

    @property
    def is_outgrown(self) -> bool:
        """Whether a version uses less than half of what the store holds, and the rest is worth a copy of the newest one."""
        return self.held_bytes > _WORTH + 2 * self._bytes(control.OUT)

    def has_room(self, words: int) -> bool:
        """Return whether `words` more words surely fit, in blocks of any class."""
        C = self.C  # first a quick answer: `room` also counts chunks without blocks before NEXT_CHUNK
        return words < (self._most_chunks - C.item(control.NEXT_CHUNK)) << self._half or words <= room(C)

    def require_words(self, words: int) -> None:
        """Raise MemoryError unless `has_room` for so many words."""
        if not self.has_room(words):
            raise MemoryError(f"this view's structure has reached the size of its arena ({8 * self.M.size} bytes)")

    def _bytes(self, counts: int) -> int:
        return 8 * int(self.classes[:, counts] @ self.classes[:, control.SIZE])

    @property
    def live_bytes(self) -> int:
        """The bytes of the newest version's blocks."""
        return self._bytes(control.OUT) - self._bytes(control.WAITING)

    @property
    def retired_bytes(self) -> int:
        """The bytes of the blocks that only older versions see."""
        return self._bytes(control.WAITING)

    @property
    def held_bytes(self) -> int:
        """The bytes of all chunks that have a block, and of the records of retired ones."""
        C = self.C
        chunks = C.item(control.NEXT_CHUNK) - 1 - C.item(control.UNUSED)
        return 8 * ((chunks << C.item(control.SHIFT)) + record_at(C.item(control.RECORDS_MOST)))
