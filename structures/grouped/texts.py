"""The texts of groups in the order of their bytes: for each group a treap of the codes of its texts, with counts, written in place; only
the writer reads it.

    roots[group] ──> a node: the code of a text, its count, and two subtrees: of lesser texts and of greater ones

A node's priority, a hash of its code, is at least those of its subtrees. The texts are in the rows of their codes: no node has a code that
is no longer counted, so a code may be given to another text as soon as its last one is gone.

Costs: O(log n) expected, and as many comparisons of texts, to count a text up or down, and to find a group's least and greatest. Memory 32
bytes a text of a group. Source: Seidel and Aragon, Randomized search trees (1996).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from structures.core.kernel import arrays, compiled, kernel, wide
from structures.core.reserve import MEMORY, reserve
from structures.rows.key_table import SlotRows

USED, FREE, ENTRIES, WRONG, CONTROL_WORDS = range(5)
_NODE_BYTES = 32


@arrays("int64[::1]", "int64[::1]", "int64[:, ::1]", "int32[::1]", "int64[::1]")
class Nodes(NamedTuple):
    """texts, times: int64[n], the code of each node's text and its count; below: int64[n, 2], its subtrees, 0 for none; roots: of groups;
    control: nodes below USED were used, FREE begins a list of free ones, by `texts`."""

    texts: np.ndarray
    times: np.ndarray
    below: np.ndarray
    roots: np.ndarray
    control: np.ndarray


@kernel
def is_less(stored: SlotRows, a: int, b: int) -> bool:
    """Return whether the text of code a is before that of code b."""
    x, y, heap = stored.positions[a], stored.positions[b], stored.heap
    n, m = stored.cells[a, 0], stored.cells[b, 0]
    for i in range(min(n, m)):
        if heap[x + i] != heap[y + i]:
            return heap[x + i] < heap[y + i]
    return n < m


@kernel
def priority(code: int) -> int:
    """A hash, from 0 to 2**31 - 1."""
    mixed = ((code ^ (code >> 15)) * 0x2C1B3C6D) & 0x7FFFFFFF
    mixed = ((mixed ^ (mixed >> 12)) * 0x297A2D39) & 0x7FFFFFFF
    return mixed ^ (mixed >> 15)


@kernel
def put_below(nodes: Nodes, group: int, owner: int, side: int, node: int) -> None:
    """Make a node the subtree of its owner, or the root of the group if the owner is 0."""
    if owner:
        nodes.below[owner, side] = node
    else:
        nodes.roots[group] = node


@kernel
def _insert(nodes: Nodes, stored: SlotRows, group: int, text: int) -> None:
    rank, owner, side, at = priority(text), wide(0), wide(0), wide(nodes.roots[group])
    while at and priority(nodes.texts[at]) >= rank:
        side = wide(is_less(stored, nodes.texts[at], text))
        owner, at = at, nodes.below[at, side]
    new = nodes.control[FREE]
    if new:
        nodes.control[FREE] = nodes.texts[new]
    else:
        nodes.control[USED] += 1
        new = nodes.control[USED]
    nodes.texts[new], nodes.times[new] = text, 1
    put_below(nodes, group, owner, side, new)
    less, greater, of_less, of_greater = new, new, wide(0), wide(1)  # where the next lesser and the next greater part belong
    while at:
        if is_less(stored, nodes.texts[at], text):
            nodes.below[less, of_less] = at
            less, of_less, at = at, wide(1), nodes.below[at, 1]
        else:
            nodes.below[greater, of_greater] = at
            greater, of_greater, at = at, wide(0), nodes.below[at, 0]
    nodes.below[less, of_less] = 0
    nodes.below[greater, of_greater] = 0
    nodes.control[ENTRIES] += 1


@kernel
def _remove(nodes: Nodes, group: int, owner: int, side: int, node: int) -> None:
    a, b = nodes.below[node, 0], nodes.below[node, 1]
    while a and b:
        if priority(nodes.texts[a]) >= priority(nodes.texts[b]):
            put_below(nodes, group, owner, side, a)
            owner, side, a = a, wide(1), nodes.below[a, 1]
        else:
            put_below(nodes, group, owner, side, b)
            owner, side, b = b, wide(0), nodes.below[b, 0]
    put_below(nodes, group, owner, side, a if a else b)
    nodes.texts[node] = nodes.control[FREE]
    nodes.control[FREE] = node
    nodes.control[ENTRIES] -= 1


@kernel("void(Nodes, SlotRows, int32[::1], int8[::1], int64[::1], uint8[::1])")
def count_texts(nodes: Nodes, stored: SlotRows, groups: Any, signs: Any, texts: Any, nulls: Any) -> None:
    """Count the text of each row up (1) or down (-1) in its group; those that are null are skipped. O(log n) a row, expected."""
    for i in range(len(groups)):
        if nulls[i]:
            continue
        group, text = wide(groups[i]), texts[i]
        owner, side, at = wide(0), wide(0), wide(nodes.roots[group])
        while at and nodes.texts[at] != text:
            side = wide(is_less(stored, nodes.texts[at], text))
            owner, at = at, nodes.below[at, side]
        if at:
            nodes.times[at] += signs[i]
            if nodes.times[at] == 0:
                _remove(nodes, group, owner, side, at)
        elif signs[i] > 0:
            _insert(nodes, stored, group, text)
        else:
            nodes.control[WRONG] += 1


@kernel("void(Nodes, int32[::1], int64, int64[::1])")
def find_ends(nodes: Nodes, groups: Any, side: int, out: Any) -> None:
    """out[i]: the code of the least (side 0) or greatest (1) text of a group; -1: it has none. O(log n) each, expected."""
    for i in range(len(groups)):
        at, found = wide(nodes.roots[groups[i]]), wide(-1)
        while at:
            found, at = nodes.texts[at], nodes.below[at, side]
        out[i] = found


class Texts:
    """See the module's head. One thread."""

    def __init__(self, stored: Callable[[], SlotRows], most_groups: int) -> None:
        """`stored`: returns the rows of the codes, whose only column is the text. OSError: no address space."""
        self._made_of = stored, most_groups
        self._stored, most = stored, max(2, MEMORY // _NODE_BYTES)
        self._most = min(most, 2**31 - 1)
        self._nodes = Nodes(
            reserve(8 * self._most, np.int64), reserve(8 * self._most, np.int64), reserve(16 * self._most, np.int64).reshape(-1, 2),
            reserve(4 * most_groups, np.int32), np.zeros(CONTROL_WORDS, np.int64),
        )  # fmt: skip

    def empty(self) -> Texts:
        """New ones of the same kind. OSError: no address space."""
        return Texts(*self._made_of)

    def require(self, rows: int) -> None:
        """Raise MemoryError unless this number of rows certainly fits. O(1)."""
        if self._nodes.control[USED] + rows + 1 >= self._most:
            raise MemoryError("the texts of a view's groups have reached the size of this machine's memory")

    def count(self, groups: np.ndarray, signs: np.ndarray, texts: np.ndarray, nulls: np.ndarray) -> None:
        """Count texts up or down: int32[n], int8[n], int64[n], uint8[n]."""
        columns = (np.ascontiguousarray(column) for column in (texts, nulls))
        compiled(count_texts)(self._nodes, self._stored(), groups, signs, *columns)
        if wrong := int(self._nodes.control[WRONG]):
            raise KeyError(f"{wrong} texts went out of groups that did not have them")

    def ends(self, groups: np.ndarray, greatest: bool) -> np.ndarray:
        """int64[n]: the code of the least or greatest text of each group; -1: it has none."""
        found = np.empty(len(groups), np.int64)
        compiled(find_ends)(self._nodes, groups, int(greatest), found)
        return found

    @property
    def parts(self) -> tuple[Nodes, SlotRows]:
        """The nodes, and the rows of the codes as they are now."""
        return self._nodes, self._stored()

    @property
    def bytes(self) -> int:
        return _NODE_BYTES * int(self._nodes.control[USED])

    def check(self, groups: int) -> None:
        """AssertionError: a group's texts are not in order, a count is not above 0, a priority is below one beneath it, or a node is lost.
        All groups are below `groups`. O(n)."""
        texts, times, below, roots, control = self._nodes
        stored, found = self._stored(), 0
        for group in np.flatnonzero(roots[:groups]).tolist():
            pending, last = [(int(roots[group]), False)], b""
            first = True
            while pending:
                node, seen = pending.pop()
                left, right = below[node].tolist()
                if not seen:
                    pending += ([(right, False)] if right else []) + [(node, True)] + ([(left, False)] if left else [])
                    continue
                found += 1
                code = int(texts[node])
                start = int(stored.positions[code])
                text = stored.heap[start : start + int(stored.cells[code, 0])].tobytes()
                assert first or last < text, "the order of a group's texts"
                assert times[node] > 0, "a text that is not there"
                assert all(priority(code) >= priority(int(texts[one])) for one in (left, right) if one), "a priority"
                first, last = False, text
        free, node = 0, int(control[FREE])
        while node:
            free, node = free + 1, int(texts[node])
        assert found == control[ENTRIES] and found + free == control[USED], "a node is lost"
