"""Merges of quadtrees: a tree is made compact again beside the one that is in use, some steps at a time, while that one goes on changing.

    in use   root of tick t ... changes ... changes ... | root at the switch: its live blocks are dropped, some at a time
               \\                 log ->  log ->          \\
    beside      compact form -> its place -> replay of the log -> root of the tree from here on

    gather   the entries of the version of tick t, in Morton order except within leaves; its blocks are kept until then, as if a reader
             had pinned it
    make     the compact form of these (`compact.compress`), not yet where readers look
    copy     to its place
    replay   what has changed since, in a tree of its own (`layout.SPARE_TREE`), whose blocks nobody else sees

The switch is O(1), and is part of a version: what is published of a version never changes. One tree at a time: at most two copies of one
tree are held, and the log. A merge can be given up at any moment, and nothing is lost.

Steps are entries and nodes visited, those of bisections included; a replayed change, or a dropped block, counts as several.
Costs: O(n) steps for n entries, up to seven each; and twice the cost of the changes that come meanwhile. Source: Overmars, *The Design of
Dynamic Data Structures* (1983), global rebuilding.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np

from structures.core.blocks import WriteState
from structures.core.control import SIZE, VERSION
from structures.core.kernel import arrays, compiled, kernel, wide
from structures.core.reserve import reserve
from structures.quadtree import layout
from structures.quadtree.changes import delete_entry, insert_entry
from structures.quadtree.compact import CODE, LEFT, CompactForms, begun, compact_position, compress, form_words
from structures.quadtree.layout import QuadArena, QuadNodes, QuadtreeShape, drop_block, is_leaf, level_below, live_child
from structures.quadtree.search import child_of, copy_leaf, ends_at

ALL = 1 << 50  # steps: more than there are
REPLAYED = 32  # steps for each replayed change
DROPPED = 16  # steps for each dropped block
_COPIED = 3  # words copied in a step, including the allocation of their pages

WAITING, BASE, BITS, ARITY, FIRST, FOUND, CODES = range(7)
_SPARE = layout.TREE + layout.TREE_WORDS * layout.SPARE_TREE


@arrays("int64[:, ::1]", "int64[::1]")
class Descent(NamedTuple):
    """A walk through the subtrees of a root: the stack of those to visit [place, level]; the state: the size of the stack; base, bits,
    arity and first of the tree; words of entries found, their codes ORed."""

    todo: np.ndarray
    state: np.ndarray

    @property
    def is_over(self) -> bool:
        return self.state.item(WAITING) == 0

    @property
    def waiting(self) -> tuple[list[int], int]:
        """The places whose subtrees are still to be visited, and the arity of the tree."""
        return self.todo[: self.state.item(WAITING), 0].tolist(), self.state.item(ARITY)


def descent(position: int, bits: int, base: int, shape: QuadtreeShape) -> Descent:
    todo = np.empty(((layout.LEVELS + 1) << shape.arity, 2), np.int64)
    todo[0] = position, bits - 1 + (layout.CODE_BITS if shape.first else 0)
    return Descent(todo, np.array([position != 0, base, bits, *shape, 0, 0], np.int64))


@kernel("int64(QuadNodes, Descent, int32[::1], int64)", allocates=True)
def gather_entries(nodes: QuadNodes, way: Descent, entries: Any, budget: int) -> int:
    """Continue copying entries to `entries`, in Morton order except within leaves, until none is left or `budget` steps are done. Returns
    the number of steps left. O(budget)."""
    W, todo, state = nodes.W, way.todo, way.state
    base, bits, k, f, e = state[BASE], state[BITS], state[ARITY], state[FIRST], state[FOUND]
    S = np.empty(k * layout.LEAF + 16, np.int32)
    while state[WAITING] > 0 and budget > 0:
        state[WAITING] -= 1
        o, b = todo[state[WAITING], 0], todo[state[WAITING], 1]
        budget -= 1
        if ends_at(W, o):
            n = copy_leaf(nodes, base, o, QuadtreeShape(k, f), b, 0, S, 0)
            budget -= n
            for i in range(n):
                for j in range(k + 1):
                    entries[e + j] = S[j * layout.LEAF + i]
                    if j < k:
                        state[CODES] |= wide(entries[e + j])
                e += k + 1
        else:
            for c in range((1 << k) - 1, -1, -1):
                child = wide(child_of(nodes, base, o, k, c))
                if child != 0:
                    todo[state[WAITING], 0], todo[state[WAITING], 1] = child, level_below(b, bits)
                    state[WAITING] += 1
    state[FOUND] = e
    return budget


@kernel("int64(QuadNodes, WriteState, Descent, int64)")
def drop_blocks(nodes: QuadNodes, writing: WriteState, way: Descent, budget: int) -> int:
    """Continue dropping the live blocks of a root that the newest version no longer uses, until none is left or `budget` blocks are
    dropped. Returns how much of the budget is left. O(budget)."""
    W, todo, state = nodes.W, way.todo, way.state
    k = state[ARITY]
    while state[WAITING] > 0 and budget > 0:
        state[WAITING] -= 1
        o = todo[state[WAITING], 0]
        if o <= 0:  # what lies below a compact place is compact
            continue
        for c in range(0 if is_leaf(W, o) else 1 << k):
            child = live_child(W, o, c)
            if child > 0:
                todo[state[WAITING], 0] = child
                state[WAITING] += 1
        drop_block(nodes, writing, o, k)
        budget -= 1
    return budget


@kernel("int64(QuadNodes, WriteState, int64, int32[::1], uint8[::1])")
def replay(nodes: QuadNodes, writing: WriteState, t: int, entries: Any, inserted: Any) -> int:
    """Insert or delete these entries, one after another. Returns the number done: all, or those before one that tree t does not reach, or
    does not have. O(2**k log n) an entry."""
    C = writing.C
    h = layout.TREE + layout.TREE_WORDS * t
    width = C[h + layout.ARITY] + 1
    for i in range(len(inserted)):
        if inserted[i] != 0:
            done = insert_entry(nodes, writing, t, entries, i * width)
        else:
            done = delete_entry(nodes, writing, t, entries, i * width)
        if not done:
            return i
    return wide(len(inserted))


class PointChanges(NamedTuple):
    """Changes of a tree, in order."""

    entries: np.ndarray  # int32[n, k + 1]
    inserted: np.ndarray  # uint8[n]


class Merge:
    """The merge of one tree. `since`: the tick whose blocks must be kept for it; None once they are no longer needed."""

    def __init__(self, arena: QuadArena, forms: CompactForms, tree: int, shape: QuadtreeShape, bits: int) -> None:
        """Begin the merge of the newest version, which is complete. `bits`: if the tree is in two parts, the new one is to reach codes
        below 2**bits, otherwise those of its entries. O(1)."""
        self.tree, self._shape, self._bits = tree, shape, bits
        self.since: int | None = arena.C.item(VERSION)
        self._arena, self._forms = arena, forms
        self._arrays = QuadNodes(arena.M, arena.W, forms.compact, forms.packed), arena.writing
        h = layout.TREE + layout.TREE_WORDS * tree
        self.root: list[int] = arena.C[h : h + 4].tolist()
        position, old_bits, base, count = self.root
        self._parts: list[tuple[int, np.ndarray]] = []  # to be copied
        self._log: deque[PointChanges] = deque()
        self.changed = 0  # entries changed since the merge began
        self._way, self._entries = descent(position, old_bits, base, shape), reserve(4 * max(1, count) * (shape.arity + 1), np.int32)
        self._phases = [self._gather, self._make, self._copy]

    @property
    def is_ready(self) -> bool:
        """Whether only the switch is left, as long as nothing changes."""
        return self.is_placed and not self._log

    @property
    def is_placed(self) -> bool:
        """Whether the new compact form can be read."""
        return len(self._phases) == 0

    @property
    def made(self) -> list[int]:
        """Root, bits, base and count of the tree made beside the one in use; zeros: nothing is made yet."""
        words: list[int] = self._arena.C[_SPARE : _SPARE + 4].tolist()
        return words

    def add(self, changes: PointChanges) -> None:
        """Log these changes of the tree in use."""
        self._log.append(changes)
        self.changed += len(changes.inserted)

    def go_on(self, steps: int) -> int:
        """Do up to `steps` steps. Returns the number left, below 0 if the last piece took more. Raises MemoryError or ValueError if the
        merge must be given up, KeyError if the tree made is wrong."""
        while steps > 0 and not self.is_ready:
            steps = self._phases[0](steps) if self._phases else self._replay(steps)
        return steps

    def _gather(self, steps: int) -> int:
        steps = int(compiled(gather_entries)(self._arrays[0], self._way, self._entries, steps))
        if self._way.is_over:
            self.since = None
            bits = self._bits if self._shape.first else max(1, self._way.state.item(CODES).bit_length())
            self._making = begun(self.root[3], self._shape, bits)
            self._phases.pop(0)
        return steps

    def _make(self, steps: int) -> int:
        steps = int(compiled(compress)(self._entries, self._entries[:0], self._making, *self._shape, steps))
        if self._making.state[LEFT] == 0:
            self._entries = np.empty(0, np.int32)
            self._put()
        return steps

    def _put(self) -> None:
        """Allocate the place of the new form, which is complete."""
        making, C = self._making, self._arena.C
        bits, count = making.H.item(CODE), self.root[3]
        self._forms.require(form_words(making))
        base, self._parts = self._forms.position(C.item(VERSION), making, count)
        C[_SPARE : _SPARE + layout.TREE_WORDS] = compact_position(0, False), bits, base, count, *self._shape
        del self._making  # the parts hold the arrays until they are copied
        self._phases.pop(0)

    def _copy(self, steps: int) -> int:
        at, part = self._parts[0]
        n = min(len(part), _COPIED * steps)
        self._forms.compact[at : at + n] = part[:n]
        self._parts[0] = at + n, part[n:]
        if n == len(part):
            self._parts.pop(0)
        if not self._parts:
            self._phases.pop(0)
        return steps - n // _COPIED - 1

    def _replay(self, steps: int) -> int:
        entries, inserted = self._log[0]
        n = min(steps // REPLAYED + 1, len(inserted))
        self._arena.require_words(n * layout.LEVELS * 2 * int(self._arena.classes[: 2 * layout.MOST_ARITY, SIZE].max()))
        done = compiled(replay)(*self._arrays, layout.SPARE_TREE, entries[:n].reshape(-1), inserted[:n])
        if done < n and inserted[done]:
            raise ValueError("the tree that is made does not reach so far as the one in use")
        if done < n:
            raise KeyError("an entry that the tree in use had was not in the tree that is made")
        if n < len(inserted):
            self._log[0] = PointChanges(entries[n:], inserted[n:])
        else:
            self._log.popleft()
        return steps - REPLAYED * n

    def take(self) -> list[int]:
        """Return the same as `made`; the tree now belongs to the caller."""
        words = self.made
        self._arena.C[_SPARE : _SPARE + layout.TREE_WORDS] = 0
        return words
