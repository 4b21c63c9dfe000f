"""The values of groups joined in order: the texts of a treap (`texts`), each a position followed by a value and the length of that in four
bytes, the least significant first. So they are in the order of the positions; what is joined are the values.

Cost: O(1) a value and byte, up to MOST bytes and as many values of a group, however many it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from structures.core.kernel import arrays, compiled, kernel, wide
from structures.core.reserve import MEMORY, reserve
from structures.grouped.texts import Nodes, Texts
from structures.rows.key_table import SlotRows

MOST = 1 << 16  # bytes of a joined text, and values in it
LENGTH_BYTES = 4
ABSENT, PRESENT, LONG = range(3)
_ROOM = 16 * MOST


@arrays("uint8[::1]", "int32[::1]", "uint8[::1]")
class JoinedTexts(NamedTuple):
    """Texts of n groups: data; ends: int32[n + 1], where each begins, and the end; states: uint8[n], ABSENT of a group without values, LONG
    of one that has more than fit into a text (empty, both), otherwise PRESENT."""

    data: np.ndarray
    ends: np.ndarray
    states: np.ndarray


@kernel
def length_of(stored: SlotRows, at: int) -> int:
    """Return the length that is written here."""
    length = wide(0)
    for i in range(LENGTH_BYTES):
        length |= wide(stored.heap[at + i]) << (8 * i)
    return length


@kernel
def _join(nodes: Nodes, stored: SlotRows, group: int, between: Any, out: JoinedTexts, at: int, most: int, stack: Any) -> int:
    """Write the joined text of a group from `at` on; return where it ends, -1 if it is too long."""
    node, depth, end, values = wide(nodes.roots[group]), wide(0), wide(at), wide(0)
    while node or depth:
        while node:
            stack[depth] = node
            depth += 1
            node = nodes.below[node, 0]
        depth -= 1
        node = wide(stack[depth])
        code = nodes.texts[node]
        behind = stored.positions[code] + stored.cells[code, 0] - LENGTH_BYTES
        length = length_of(stored, behind)
        before = wide(len(between)) if values else wide(0)
        values += 1
        if end + before + length - at > most or values > MOST:
            return wide(-1)
        for i in range(before):
            out.data[end + i] = between[i]
        end += before
        for i in range(length):
            out.data[end + i] = stored.heap[behind - length + i]
        end += length
        node = nodes.below[node, 1]
    return end


@kernel("int64(Nodes, SlotRows, int32[::1], uint8[::1], int64, JoinedTexts, int32[::1])")
def _join_all(nodes: Nodes, stored: SlotRows, groups: Any, between: Any, most: int, out: JoinedTexts, stack: Any) -> int:
    """Join the values of each group, until there may be no room for the next one; return the number of those that are done. O(1) a
    value and byte."""
    for k in range(len(groups)):
        first = wide(out.ends[k])
        if first + most > len(out.data):
            return wide(k)
        group, end = wide(groups[k]), first
        out.states[k] = PRESENT if nodes.roots[group] else ABSENT
        if nodes.roots[group]:
            end = _join(nodes, stored, group, between, out, first, most, stack)
        if end < 0:
            out.states[k], end = LONG, first
        out.ends[k + 1] = end
    return wide(len(groups))


class Joining:
    """Joins the values of groups. One thread."""

    def __init__(self, between: bytes, most: int) -> None:
        """between: what separates two values; most: bytes of a text, up to MOST. OSError: no address space."""
        self._between, self._most = np.array(list(between), np.uint8), most
        self._data, self._stack = np.empty(_ROOM, np.uint8), reserve(MEMORY // 8, np.int32)

    def of(self, texts: Texts, groups: np.ndarray) -> Iterator[tuple[slice, JoinedTexts]]:
        """Yield the texts of these groups (int32[n]), some at a time, with their places; the next ones overwrite the data."""
        first = 0
        while first < len(groups):
            some = groups[first:]
            out = JoinedTexts(self._data, np.zeros(len(some) + 1, np.int32), np.zeros(len(some), np.uint8))
            n = compiled(_join_all)(*texts.parts, some, self._between, self._most, out, self._stack)
            yield slice(first, first + n), JoinedTexts(self._data, out.ends[: n + 1], out.states[:n])
            first += n
