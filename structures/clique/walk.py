"""Cliques of one set: walks over the starts at which enough intervals share a point, with no dead ends; all rows, a window, given ones.

Problem: report every set of `MEMBERS` entries of one key that share a point, where the one that comes last in the order starts (its centre:
the others cover its start), for centres in a stretch of the order.

    context   the largest few right endpoints of the entries to the left of the walk (within the key)
    a subtree is entered iff mn[MEMBERS] lies below it, or mn[MEMBERS - j] <= the j-th of the context: then it certainly has a centre

So the walk meets no dead ends except, at most, the leaf in which it begins. What it passes over joins the context by its `top`.

A window [lo, hi], in one key: the members share a point in it (Helly). Either all of them contain lo (they are searched there, if enough
entries of the context reach it), or their centre starts in (lo, hi]: the context at lo, and a walk from there. The rows of a given interval
r: those with one member less, without r, in the window that is r.

Costs: O(t log n) steps to the first row and between rows, O(1) a row. Source: docs/design/ij-heap.md (*Self-joins*).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from structures.clique import state
from structures.clique.covers import begin_heap, begin_search, emit, push, search, take
from structures.clique.state import CliqueWalk
from structures.core.arena import KEY_MAX
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.entries import Entries, RowBuffer, entry_of
from structures.core.kernel import kernel, wide
from structures.multiway.clique_summary import enter, keys_at, top_at
from structures.multiway.layout import CHILD, L, MultiwayNodes, height_of
from structures.multiway.leaves import count_of, entry_at, position
from structures.multiway.topology import CLIQUE
from structures.multiway.tree import input_of

NONE_GIVEN = -1
ANY_KEY = -1  # key of a reading over all keys
_HEAP_MOST = 4 * L  # entries that a walk keeps from leaf to leaf; a longer heap has dead intervals, and is built anew


# --- the context


@kernel
def pass_over(nodes: MultiwayNodes, walking: CliqueWalk, o: int) -> None:
    """Add subtree o to the context: the walk continues to its right."""
    M, W, table, Z = nodes.M, nodes.W, nodes.table, walking.Z
    keys, tops = keys_at(table, o), top_at(o)
    if W[keys] != Z[state.KEY]:
        Z[state.KEY], Z[state.COUNT] = W[keys], 0
    for j in range(W[keys + 1]):
        Z[state.COUNT] = enter(Z, state.CONTEXT, Z[state.COUNT], Z[state.KEPT], M[tops + j])
    Z[state.WHOLE] = 0


@kernel
def pass_entry(walking: CliqueWalk, right: int, slot: int) -> None:
    """Add an entry of the context's key to the context: the walk continues behind it."""
    Z = walking.Z
    Z[state.COUNT] = enter(Z, state.CONTEXT, Z[state.COUNT], Z[state.KEPT], right)
    if Z[state.WHOLE] != 0:
        push(walking, right, slot)


@kernel
def has_centre(nodes: MultiwayNodes, walking: CliqueWalk, o: int) -> bool:
    """Whether subtree o, the next one to the right, has a centre within the stretch: exact."""
    M, W, table, Z = nodes.M, nodes.W, nodes.table, walking.Z
    keys, leasts = keys_at(table, o) + 1, top_at(o) + table[CLIQUE] - 1
    for j in range(Z[state.MEMBERS]):
        k = Z[state.MEMBERS] - j
        key, start = wide(W[keys + k]), M[leasts + k]
        if key == KEY_MAX or key > Z[state.HIGH_KEY] or (key == Z[state.HIGH_KEY] and start > Z[state.HIGH]):
            continue
        if j == 0 or (j <= Z[state.COUNT] and key == Z[state.KEY] and start <= Z[state.CONTEXT + j - 1]):
            return True
    return False


# --- steps of a walk


@kernel
def next_leaf(nodes: MultiwayNodes, walking: CliqueWalk) -> None:
    """Go down to the next leaf that has a centre."""
    M, W, Z = nodes.M, nodes.W, walking.Z
    while Z[state.NODE_DEPTH] > 0:
        Z[state.STEPS] += 1
        Z[state.NODE_DEPTH] -= 1
        o = Z[state.NODE_STACK + Z[state.NODE_DEPTH]]
        if not has_centre(nodes, walking, o):
            pass_over(nodes, walking, o)
            continue
        while height_of(W, o) > 0:
            Z[state.STEPS] += 1
            lower, upper = M[o + CHILD], M[o + CHILD + 1]
            if has_centre(nodes, walking, lower):
                Z[state.NODE_STACK + Z[state.NODE_DEPTH]] = upper
                Z[state.NODE_DEPTH] += 1
                o = lower
            else:
                pass_over(nodes, walking, lower)
                o = upper
        enter_leaf(walking, o, 0)
        return
    Z[state.MODE] = state.DONE


@kernel
def enter_leaf(walking: CliqueWalk, o: int, at: int) -> None:
    Z = walking.Z
    Z[state.LEAF], Z[state.AT], Z[state.FRUITFUL], Z[state.MODE] = o, at, 0, state.ENTRIES
    if Z[state.HEAPED] > _HEAP_MOST:
        Z[state.WHOLE] = 0


@kernel
def next_centre(nodes: MultiwayNodes, walking: CliqueWalk) -> None:
    """Go to the next centre in the leaf, and begin with the covers of its start."""
    M, W, table, Z = nodes.M, nodes.W, nodes.table, walking.Z
    o = Z[state.LEAF]
    e, w = entry_at(table, o)
    n, covers = count_of(nodes, o), Z[state.MEMBERS] - 1
    for i in range(Z[state.AT], n):
        key, left = wide(W[w + L + i]), M[e + i]
        if key > Z[state.HIGH_KEY] or (key == Z[state.HIGH_KEY] and left > Z[state.HIGH]):
            Z[state.NODE_DEPTH] = 0
            break
        Z[state.STEPS] += 1
        if key != Z[state.KEY]:
            Z[state.KEY], Z[state.COUNT], Z[state.HEAPED], Z[state.WHOLE] = key, 0, 0, 1
        if Z[state.COUNT] >= covers and Z[state.CONTEXT + covers - 1] >= left:
            Z[state.START], Z[state.CENTRE], Z[state.AT], Z[state.PICKS], Z[state.FRUITFUL] = left, W[w + i], i, covers - 1, 1
            if Z[state.WHOLE] != 0:
                begin_heap(walking)
                Z[state.MODE] = state.HEAP
            else:
                begin_search(nodes, walking, left, 8 * wide(W[w + i]), i)
                Z[state.MODE] = state.SEARCH
            return
        pass_entry(walking, M[e + L + i], wide(W[w + i]))
    Z[state.DEAD] += 1 - Z[state.FRUITFUL]
    Z[state.MODE] = state.NODES


@kernel
def leave_centre(nodes: MultiwayNodes, walking: CliqueWalk) -> None:
    """Add the centre to the context, as all its rows are written."""
    M, W, table, Z = nodes.M, nodes.W, nodes.table, walking.Z
    Z[state.WHOLE], Z[state.MODE] = 1, state.ENTRIES
    Z[state.DEAD] += 1 if Z[state.COVERS] <= Z[state.PICKS] else 0
    if Z[state.CENTRE] >= 0:
        e, w = entry_at(table, Z[state.LEAF])
        pass_entry(walking, M[e + L + Z[state.AT]], wide(W[w + Z[state.AT]]))
        Z[state.AT] += 1


@kernel
def walk(nodes: MultiwayNodes, walking: CliqueWalk, emitted: RowBuffer, n: int, end: int, until: int) -> int:
    """Continue until the rows written reach `end`, the steps exceed `until`, the heap needs room (Z[FULL]), or all rows are found (Z[MODE]
    is DONE). Returns the number of rows written."""
    Z, H = walking.Z, walking.H
    while Z[state.STEPS] < until:
        mode = Z[state.MODE]
        if mode == state.ROWS:
            n = emit(walking, emitted, n, end)
            if Z[state.PICKING] != 0:
                return n
            Z[state.MODE] = Z[state.BACK]
            continue
        if mode == state.DONE:
            return n
        if len(H) - Z[state.HEAPED] <= L:
            Z[state.FULL] = 1
            return n
        if mode == state.NODES:
            next_leaf(nodes, walking)
        elif mode == state.ENTRIES:
            next_centre(nodes, walking)
        elif search(nodes, walking) if mode == state.SEARCH else take(walking):
            if Z[state.COVERS] > Z[state.PICKS]:
                Z[state.MODE], Z[state.BACK] = state.ROWS, mode
        else:
            leave_centre(nodes, walking)
    return n


# --- beginnings


@kernel
def start(table: Any, walking: CliqueWalk, root: int, members: int, given: int, high_key: int, high: int) -> None:
    """Begin a walk with no nodes yet and an empty context."""
    Z = walking.Z
    Z[state.TOP], Z[state.MEMBERS], Z[state.GIVEN], Z[state.HIGH_KEY], Z[state.HIGH] = root, members, given, high_key, high
    Z[state.KEY], Z[state.COUNT], Z[state.KEPT] = -1, 0, table[CLIQUE]
    Z[state.NODE_DEPTH], Z[state.HEAPED], Z[state.WHOLE], Z[state.PICKING] = 0, 0, 0, 0
    Z[state.MODE] = state.NODES


@kernel
def stand(nodes: MultiwayNodes, walking: CliqueWalk, key: int, left: int, slot: int) -> None:
    """Go to the place of (key, left, slot): the entries before it are the context, those after it lie ahead."""
    M, W, table, Z = nodes.M, nodes.W, nodes.table, walking.Z
    o = Z[state.TOP]
    while height_of(W, o) > 0:
        Z[state.STEPS] += 1
        lower, upper = M[o + CHILD], M[o + CHILD + 1]
        if input_of(nodes, o, key, left, 8 * slot):
            pass_over(nodes, walking, lower)
            o = upper
        else:
            Z[state.NODE_STACK + Z[state.NODE_DEPTH]] = upper
            Z[state.NODE_DEPTH] += 1
            o = lower
    e, w = entry_at(table, o)
    if Z[state.KEY] != key:
        Z[state.KEY], Z[state.COUNT] = key, 0
    at = position(nodes, o, 0, key, left, slot)
    i = at - 1
    while i >= 0 and W[w + L + i] == key:
        Z[state.STEPS] += 1
        Z[state.COUNT] = enter(Z, state.CONTEXT, Z[state.COUNT], Z[state.KEPT], M[e + L + i])
        i -= 1
    enter_leaf(walking, o, at)


@kernel
def start_rows(nodes: MultiwayNodes, walking: CliqueWalk, root: int, low_key: int, high_key: int) -> None:
    """Begin all rows of the keys low_key..high_key."""
    table, Z = nodes.table, walking.Z
    start(table, walking, root, table[CLIQUE], NONE_GIVEN, high_key, POS_INF)
    Z[state.KEPT] = table[CLIQUE] - 1
    if low_key > 0:
        stand(nodes, walking, low_key, NEG_INF, -1)
        Z[state.WHOLE] = 1
    else:
        Z[state.NODE_STACK], Z[state.NODE_DEPTH] = root, 1


class Window(NamedTuple):
    """A closed window in one key."""

    key: int
    low: int
    high: int


@kernel
def start_window(nodes: MultiwayNodes, walking: CliqueWalk, root: int, window: Window, given: int, inside: bool, right: int) -> None:
    """Begin the rows whose members all meet the window. They contain the entry `given` (-1: none), which meets the window, ends at `right`,
    and is `inside` the tree or not."""
    table, Z = nodes.table, walking.Z
    key, lo, hi = window
    members = table[CLIQUE] if given < 0 else table[CLIQUE] - 1
    start(table, walking, root, members, given, key, hi)
    if lo > hi:
        Z[state.MODE] = state.DONE
        return
    stand(nodes, walking, key, lo, KEY_MAX)
    if inside:
        forget(walking, right)
    found = Z[state.COUNT] >= members and Z[state.CONTEXT + members - 1] >= lo
    Z[state.KEPT] = members - 1
    Z[state.COUNT] = min(Z[state.COUNT], members - 1)
    if found:
        Z[state.START], Z[state.CENTRE], Z[state.PICKS], Z[state.FRUITFUL] = lo, -1, members - 1, 1
        begin_search(nodes, walking, lo, 8 * KEY_MAX, Z[state.AT])
        Z[state.MODE] = state.SEARCH


@kernel
def forget(walking: CliqueWalk, right: int) -> None:
    """Remove an endpoint from the context, if it is among the largest."""
    Z = walking.Z
    found = False
    for j in range(Z[state.COUNT]):
        if found:
            Z[state.CONTEXT + j - 1] = Z[state.CONTEXT + j]
        elif Z[state.CONTEXT + j] == right:
            found = True
    Z[state.COUNT] -= 1 if found else 0


@kernel
def next_key(nodes: MultiwayNodes, walking: CliqueWalk, lo: int, hi: int) -> None:
    """Begin the window in the next key that has rows; clear EACH_KEY if there is none."""
    Z = walking.Z
    start_rows(nodes, walking, Z[state.TOP], Z[state.NEXT_KEY], KEY_MAX)
    while Z[state.MODE] == state.NODES or Z[state.MODE] == state.ENTRIES:
        if Z[state.MODE] == state.NODES:
            next_leaf(nodes, walking)
        else:
            next_centre(nodes, walking)
    if Z[state.MODE] == state.DONE:
        Z[state.EACH_KEY] = 0
        return
    key = Z[state.KEY]
    Z[state.NEXT_KEY] = key + 1
    start_window(nodes, walking, Z[state.TOP], Window(key, lo, hi), NONE_GIVEN, False, 0)


@kernel("void(MultiwayNodes, CliqueWalk, int64, int64, int64, int64)")
def start_reading(nodes: MultiwayNodes, walking: CliqueWalk, root: int, key: int, lo: int, hi: int) -> None:
    """Begin all rows, or those of one key, in the window [lo, hi]. O(log n)."""
    Z = walking.Z
    if lo == NEG_INF and hi == POS_INF:
        start_rows(nodes, walking, root, max(key, 0), KEY_MAX if key == ANY_KEY else key)
    elif key != ANY_KEY:
        start_window(nodes, walking, root, Window(key, lo, hi), NONE_GIVEN, False, 0)
    else:
        Z[state.TOP], Z[state.MODE], Z[state.EACH_KEY], Z[state.NEXT_KEY] = root, state.DONE, 1, 0


@kernel("int64(MultiwayNodes, CliqueWalk, int64, Entries, int64, int64, RowBuffer, int64)")
def walk_fill(
    nodes: MultiwayNodes, walking: CliqueWalk, root: int, entries: Entries, lo: int, hi: int, emitted: RowBuffer, steps: int
) -> int:
    """Write up to `stride` rows, in about `steps` steps: first what Z has begun, then of entry after entry, which are in the tree; all
    members meet [lo, hi]. All rows are found when Z[ITEM] is the number of entries, Z[MODE] is DONE and Z[EACH_KEY] is 0 afterwards. O(t
    log n) steps to a first row and between two, O(1) a row where rows abound."""
    Z = walking.Z
    n, until = 0, Z[state.STEPS] + steps
    while n < emitted.stride and Z[state.STEPS] < until:
        if Z[state.MODE] == state.DONE:
            Z[state.STEPS] += 1
            if Z[state.EACH_KEY] != 0:
                next_key(nodes, walking, lo, hi)
            elif Z[state.ITEM] == len(entries.slot):
                break
            else:
                entry = entry_of(entries, Z[state.ITEM])
                Z[state.ITEM] += 1
                window = Window(entry.key, max(entry.left, lo), min(entry.right, hi))
                start_window(nodes, walking, root, window, entry.slot, True, entry.right)
        n = walk(nodes, walking, emitted, n, emitted.stride, until)
        if Z[state.FULL] != 0:
            break
    return n
