"""The compact form of a quadtree: level-order bitvectors with rank, ending in packed leaves; never changed once it is built.

Problem: keep the entries of a tree of `layout.py` in little more than the bits that tell them apart, so that a node's children are
found in constant time. An inner node is its index in level order, as in the paper: 2**k bits that say which children are inner nodes, as
many that say which are leaves. How many bits are set before a child is the child's index: rank, one directory word for 64 bits of either.

    words at `base`  header: where nodes and leaves lie, bits of a code
                     table: of each level the index of its first leaf, of that leaf's first entry, and at which byte it is
                     nodes: [leaves and inner nodes before | 64 children: inner? | 64 children: leaf?] ...
                     leaves: [the first one's first entry, 8 sizes of 4 bits] ..., in level order
                     leaf: of each coordinate the bits above the leaf's level, once; the entries' bits from it on; their slots

A place is an inner node or a leaf, live (an offset in W, above 0) or compact (below 0: `compact_position`); 0: nothing is there.

Decision: leaves of up to LEAF entries, as in the live form, end the bitvectors. The paper goes down to single cells; there a join spends
most steps on unary paths, and spread tuples cost 2**k bits a level where a leaf's entry costs k. Entries are of whole bytes, as a join
unpacks a leaf wherever it meets it: a few instructions a column. So they take less than the paper's bound of (k + 2) log l bits a tuple,
the slots aside.

Costs: child, mask of children O(1); a leaf O(its entries); build O(n levels). Source: Navarro, Reutter and Rojas-Ledesma, *Optimal Joins
using Compact Data Structures*, section 2; Brisaboa, Ladra and Navarro, *Compact representation of Web graphs* (k2-trees).
"""

from __future__ import annotations

from bisect import insort
from typing import Any, NamedTuple

import numpy as np

from structures.core.bits import count_bits, widen16_1, widen16_2, widen16_4
from structures.core.kernel import arrays, kernel, wide
from structures.core.pins import pinned
from structures.core.reserve import give_back, reserve
from structures.quadtree.layout import CODE_BITS, LEAF, LEVELS, QuadNodes, QuadtreeShape, digit, level_below

NODES, LEAVES, CODE, TABLE = 0, 1, 2, 3  # of the header
LOWEST = -CODE_BITS - 1  # the lowest level of a leaf
LEVEL_WORDS = 3
HEADER = TABLE + LEVEL_WORDS * LEVELS
NODE_WORDS = 3  # for 64 children
SIZES = 8  # leaves whose sizes share a word
SLOT_BYTES, SLOT_MASK = 4, 2**CODE_BITS - 1
TOGETHER = 32  # most low bits of an entry that are stored as one number
_LOW = 2**32 - 1


@kernel
def compact_position(index: int, leaf: bool) -> int:
    """Return the place of this inner node or leaf."""
    return ~(2 * index + (1 if leaf else 0))


@kernel(forceinline=True)
def first_inner(compact: Any, w: int) -> int:
    """Return the number of the first inner child among those in word w of the nodes and the words behind it."""
    return (compact[w] & _LOW) + 1


@kernel(forceinline=True)
def first_leaf(compact: Any, w: int) -> int:
    return compact[w] >> 32


@kernel(forceinline=True)
def node_word(compact: Any, base: int, position: int, arity: int) -> int:
    """Return the first of the NODE_WORDS words that have the children of a compact inner node."""
    return compact[base + NODES] + NODE_WORDS * (((~position >> 1) << arity) >> 6)


@kernel(forceinline=True)
def sizes_word(compact: Any, base: int, position: int) -> int:
    """Return the word that has the size of a compact leaf."""
    return compact[base + LEAVES] + (~position >> 1) // SIZES


@kernel
def compact_child(compact: Any, base: int, position: int, arity: int, c: int) -> int:
    """Return the place of child c of a compact inner node; 0: there is none."""
    w = node_word(compact, base, position, arity)
    bit = (((~position >> 1) << arity) + c) & 63
    before = ~(wide(-1) << bit)
    if (compact[w + 1] >> bit) & 1 != 0:
        return compact_position(first_inner(compact, w) + count_bits(compact[w + 1] & before), False)
    if (compact[w + 2] >> bit) & 1 != 0:
        return compact_position(first_leaf(compact, w) + count_bits(compact[w + 2] & before), True)
    return 0


@kernel
def compact_mask(compact: Any, base: int, position: int, arity: int) -> int:
    """Return the children of a compact inner node, as bits."""
    w = node_word(compact, base, position, arity)
    return ((compact[w + 1] | compact[w + 2]) >> (((~position >> 1) << arity) & 63)) & ((1 << (1 << arity)) - 1)


@kernel
def compact_size(compact: Any, base: int, position: int) -> int:
    """Return the number of entries of a compact leaf."""
    return ((compact[sizes_word(compact, base, position)] >> 4 * ((~position >> 1) % SIZES)) & 15) + 1


@kernel(forceinline=True)
def bytes_of(bits: int) -> int:
    """Return the bytes in which a number of `bits` bits is stored: 0, 1, 2 or 4."""
    return (bits + 7) // 8 if bits <= 16 else 4


@kernel(forceinline=True)
def low_bits(level: int, j: int, leading: int, code: int) -> int:
    """Return the number of bits of coordinate j, of `code` bits, that the path to a node of this level does not determine."""
    if level >= CODE_BITS:
        return level - CODE_BITS + 1 if j < leading else code
    return 0 if j < leading or level < 0 else level + 1


@kernel(forceinline=True)
def low_total(level: int, arity: int, leading: int, code: int) -> int:
    """Return the same for all coordinates together."""
    total = wide(0)
    for j in range(arity):
        total += low_bits(level, j, leading, code)
    return total


@kernel(forceinline=True)
def entry_bytes(level: int, arity: int, leading: int, code: int) -> int:
    """Return the size of an entry in a leaf of this level: all low bits as one number if 32 bits suffice, otherwise one number a
    coordinate; and the slot."""
    total = low_total(level, arity, leading, code)
    if total <= TOGETHER:
        return bytes_of(total) + SLOT_BYTES
    total = wide(SLOT_BYTES)
    for j in range(arity):
        total += bytes_of(low_bits(level, j, leading, code))
    return total


@kernel(forceinline=True)
def read_number(packed: Any, at: int, width: int) -> int:
    found = wide(0)
    for i in range(width):
        found |= wide(packed[at + i]) << 8 * i
    return found


@kernel
def write_number(packed: Any, at: int, width: int, value: int) -> int:
    """Write a number of `width` bytes. Returns where it ends."""
    for i in range(width):
        packed[at + i] = (value >> 8 * i) & 255
    return at + width


@kernel(forceinline=True)
def find_leaf(compact: Any, base: int, position: int, shape: QuadtreeShape, level: int) -> tuple[int, int, int]:
    """Return the first byte of a compact leaf of this level, the number of its entries, and the bytes of one."""
    k, f = shape
    q, code = ~position >> 1, compact[base + CODE]
    word, j = compact[sizes_word(compact, base, position)], q % SIZES
    before = word & ((1 << 4 * j) - 1)
    n = ((word >> 4 * j) & 15) + 1
    before = (before & 0x0F0F0F0F) + ((before >> 4) & 0x0F0F0F0F)
    first = (word >> 32) + j + (((before * 0x01010101) >> 24) & 255)
    table, each = base + TABLE + LEVEL_WORDS * (level - LOWEST), entry_bytes(level, k, f, code)
    return compact[table + 2] + (q - compact[table]) * bytes_of(code) * k + (first - compact[table + 1]) * each, n, each


@kernel(forceinline=True)
def copy_compact(nodes: QuadNodes, base: int, position: int, shape: QuadtreeShape, level: int, known: int, out: Any, s: int) -> int:
    """Copy a compact leaf as `copy_leaf` of `search.py` does."""
    compact, packed, k, f = nodes.compact, nodes.packed, shape.arity, shape.first
    at, n, _ = find_leaf(compact, base, position, shape, level)
    code = compact[base + CODE]
    prefix, total = bytes_of(code), low_total(level, k, f, code)
    p, shift = at + prefix * k, wide(0)
    for j in range(known, k):  # entries store no bits of the coordinates before
        low = low_bits(level, j, f, code)
        width = bytes_of(total if total <= TOGETHER else low)
        copy_column(packed, p, width, shift, low, read_number(packed, at + j * prefix, prefix), out, s + j * LEAF)
        if total <= TOGETHER:
            shift += low
        if total > TOGETHER or j == k - 1:
            p += n * width
    widen16_4(out, s + k * LEAF, packed, p, 0, SLOT_MASK, 0)
    return n


@kernel(forceinline=True)
def copy_column(packed: Any, p: int, width: int, shift: int, low: int, high: int, out: Any, s: int) -> None:
    """Copy sixteen numbers to out[s]: `low` bits of each, from bit `shift` of `width` bytes, with the bits of `high` above them."""
    mask = ~(wide(-1) << low)
    if width == 1:
        widen16_1(out, s, packed, p, shift, mask, high)
    elif width == 2:
        widen16_2(out, s, packed, p, shift, mask, high)
    elif width == 4:
        widen16_4(out, s, packed, p, shift, mask, high)
    else:
        widen16_1(out, s, packed, p, 0, 0, high)


@kernel
def deal(entries: Any, spare: Any, first: int, end: int, arity: int, leading: int, level: int, ends: Any) -> None:
    """Sort the entries [first, end) by their digits of this level; those of child c are then at [ends[c], ends[c + 1])."""
    width = arity + 1
    ends[:] = 0
    for i in range(first, end):
        ends[digit(entries, i * width, 1, arity, leading, level) + 2] += 1
    ends[0], ends[1] = first, first
    for c in range(1 << arity):
        ends[c + 2] += ends[c + 1]
    for i in range(first * width, end * width):
        spare[i] = entries[i]
    for i in range(first, end):
        c = digit(spare, i * width, 1, arity, leading, level)
        for j in range(width):
            entries[ends[c + 1] * width + j] = spare[i * width + j]
        ends[c + 1] += 1


@kernel
def write_leaf(packed: Any, at: int, entries: Any, first: int, end: int, shape: QuadtreeShape, level: int, code: int) -> int:
    """Write the bytes of a leaf of this level. Returns where they end."""
    k, f = shape
    for j in range(k):
        low = low_bits(level, j, f, code)
        at = write_number(packed, at, bytes_of(code), wide(entries[first * (k + 1) + j]) >> low << low)
    total = low_total(level, k, f, code)
    for j in range(0 if total > TOGETHER else k - 1, k):
        width = bytes_of(total if total <= TOGETHER else low_bits(level, j, f, code))
        for i in range(first, end):
            number, shift = wide(0), wide(0)
            for c in range(0 if total <= TOGETHER else j, j + 1):
                low = low_bits(level, c, f, code)
                number |= (wide(entries[i * (k + 1) + c]) & ~(wide(-1) << low)) << shift
                shift += low
            at = write_number(packed, at, width, number)
    for i in range(first, end):
        at = write_number(packed, at, SLOT_BYTES, wide(entries[i * (k + 1) + k]))
    return at


@arrays("int64[::1]", "int64[::1]", "int64[::1]", "uint8[::1]", "int64[:, :, ::1]")
class Construction(NamedTuple):
    """A compact form being made: its header, nodes, leaves and their bytes; for each inner node of this level, and of the next one, the
    range of entries that it is made of."""

    H: np.ndarray
    N: np.ndarray
    L: np.ndarray
    packed: np.ndarray
    ranges: np.ndarray


@kernel("int64(int32[::1], int32[::1], Construction, int64, int64)", allocates=True)
def compress(entries: Any, spare: Any, making: Construction, arity: int, leading: int) -> int:
    """Make the compact form of these entries, more than LEAF, which are reordered. `spare`: an array as long as the entries. Returns the
    bytes used of `packed`; H[NODES] and H[LEAVES] are then the words used of N and L. The table's bytes begin at 0. O(n levels)."""
    H, N, L, packed, ranges = making
    code, ends = H[CODE], np.empty((1 << arity) + 2, np.int64)
    node, inner, leaf, entry, at = wide(0), wide(0), wide(0), wide(0), wide(0)
    level, left, side = code - 1 + (CODE_BITS if leading > 0 else 0), wide(1), 0
    while left > 0:
        lower, found = level_below(level, code), wide(0)
        table = TABLE + LEVEL_WORDS * (lower - LOWEST)
        H[table], H[table + 1], H[table + 2] = leaf, entry, at
        for r in range(left):
            bit = node << arity
            w = NODE_WORDS * (bit >> 6)
            if bit & 63 == 0:
                N[w], N[w + 1], N[w + 2] = leaf << 32 | inner, 0, 0
            deal(entries, spare, ranges[side, r, 0], ranges[side, r, 1], arity, leading, level, ends)
            for c in range(1 << arity):
                first, end, mask = ends[c], ends[c + 1], wide(1) << ((bit + c) & 63)
                if end - first > LEAF:
                    N[w + 1] |= mask
                    ranges[1 - side, found, 0], ranges[1 - side, found, 1] = first, end
                    found += 1
                    inner += 1
                elif end > first:
                    N[w + 2] |= mask
                    at = write_leaf(packed, at, entries, first, end, QuadtreeShape(arity, leading), lower, code)
                    if leaf % SIZES == 0:
                        L[leaf // SIZES] = entry << 32
                    L[leaf // SIZES] |= (end - first - 1) << 4 * (leaf % SIZES)
                    leaf += 1
                    entry += end - first
            node += 1
        level, left, side = lower, found, 1 - side
    H[NODES], H[LEAVES] = NODE_WORDS * (((node << arity) + 63) >> 6), (leaf + SIZES - 1) // SIZES
    return at


def begun(n: int, shape: QuadtreeShape, code: int) -> Construction:
    """Return the arrays for making the compact form of n > LEAF entries with coordinates below 2**code. Their pages take no memory until
    they are written."""
    k, most = shape.arity, n // (LEAF + 1)
    lengths = NODE_WORDS * ((LEVELS * most << k) // 64 + 1), n // SIZES + 1, n * (2 * k + 1) * SLOT_BYTES // 8 + 1
    header = np.zeros(HEADER, np.int64)
    nodes, leaves, rest, ranges = (reserve(8 * words, np.int64) for words in (*lengths, 4 * most))  # a heap would keep their pages
    header[CODE] = code
    ranges = ranges.reshape(2, most, 2)
    ranges[0, 0] = 0, n
    return Construction(header, nodes, leaves, rest.view(np.uint8), ranges)


class Form(NamedTuple):
    """A stored form: words [base, end) of `compact`, born and retired as a block of the arena (NEVER: it is in use)."""

    base: int
    end: int
    born: int
    retired: int
    count: int  # type: ignore[assignment]  # not the method of tuples


NEVER = 2**62


def most_words(n: int, arity: int) -> int:
    """Return the maximum number of words of the compact form of n entries with k coordinates."""
    nodes = (LEVELS * (n // (LEAF + 1)) << arity) // 64 + 1
    return HEADER + NODE_WORDS * nodes + n // SIZES + 1 + n * (2 * arity + 1) * SLOT_BYTES // 8 + 1


class CompactForms:
    """The compact forms of an arena's trees, in one array. `words`: reserved address space, not memory."""

    def __init__(self, words: int) -> None:
        self.compact: np.ndarray = reserve((words + 16) * 8, np.int64)[:words]  # the last leaf's columns are read at once
        self.packed: np.ndarray = self.compact.view(np.uint8)
        self.forms: list[Form] = []

    def build(self, version: int, entries: np.ndarray, shape: QuadtreeShape, code: int) -> int:
        """Build the form of int32[n, k + 1] entries, n > LEAF, with coordinates below 2**code; return its base. The entries are reordered.
        Call `require` first."""
        flat, making = entries.reshape(-1), begun(len(entries), shape, code)
        size = int(compress(flat, np.empty_like(flat), making, *shape))
        header = making.H
        nodes, leaves = making.N[: header[NODES]], making.L[: header[LEAVES]]
        whole = header, nodes, leaves, making.packed.view(np.int64)[: (size + 7) // 8]
        base = self._room(sum(map(len, whole)))
        at, end = base + HEADER, base
        header[NODES], header[LEAVES] = at, at + len(nodes)
        header[TABLE + 2 :: LEVEL_WORDS] += 8 * (at + len(nodes) + len(leaves))
        for part in whole:
            self.compact[end : end + len(part)] = part
            end += len(part)
        insort(self.forms, Form(base, end, version, NEVER, len(entries)))
        return base

    def _room(self, words: int) -> int:
        """Return the first place with so many free words."""
        base = 1  # 0: a tree that has no compact form
        for form in self.forms:
            if form.base - base >= words:
                return base
            base = form.end
        return base

    def require(self, words: int) -> None:
        """Raise MemoryError unless `words` words surely fit, in any number of forms."""
        if words and (self.forms[-1].end if self.forms else 1) + words > len(self.compact):
            raise MemoryError(f"this view's compact quadtrees have reached the size of their array ({self.compact.nbytes} bytes)")

    def retire(self, base: int, version: int) -> None:
        """Retire the form at `base`, which `version` no longer uses."""
        self.forms = [form._replace(retired=version) if form.base == base else form for form in self.forms]

    def reclaim(self, oldest: int, pins: np.ndarray) -> None:
        """Do the same as `arena.reclaim`."""
        kept = [form for form in self.forms if form.retired > oldest or pinned(pins, form.born, form.retired)]
        if len(kept) < len(self.forms):
            self.forms, free = kept, 0
            for form in kept:
                give_back(self.compact, free, form.base)
                free = form.end
            give_back(self.compact, free, len(self.compact))

    def bits_a_tuple(self, base: int) -> float:
        """Return the bits per tuple of the form at `base`, without the slots; 0 if it has been freed."""
        return next((64 * (form.end - form.base) / form.count - 8 * SLOT_BYTES for form in self.forms if form.base == base), 0.0)

    def bytes(self, live: bool) -> int:
        """Return the bytes of the forms in use (`live`), or of those that only older versions see."""
        return 8 * sum(form.end - form.base for form in self.forms if (form.retired == NEVER) == live)
