"""The number of occurrences of each value in each group: a B+-tree of (group, value) with counts, changed in place; only the writer reads
it.

    inner node    the separator (group, value) of each child, its first entry when it was made, and the child: all entries of the child are
                  at or after it, those of the children before are before it; that of the first child is not used
    leaf          (group, value), its count: at least one

A block holds up to B entries and, unless it is the root, at least a quarter of that: one that falls below is evened out or merged with its
neighbour. Block 0 is NIL.

Costs: O(log n) to count a value up or down, and to find a group's least and greatest. Memory 24 bytes an entry, in blocks at least a
quarter full.
"""

from __future__ import annotations

from typing import Any

from structures.aggregate.layout import SIGN, Tree
from structures.core.arena import B as LEAF
from structures.core.kernel import kernel

B = max(4, LEAF)
LEAST = max(1, B // 4)
_TOGETHER = B - LEAST  # most entries of two blocks that are merged
MOST_LEVELS = 40
ON, TAKEN, PATH_WORDS = range(3)  # for each level of a path: the inner node, and the number of its child
ROOT, HEIGHT, USED, FREE, ENTRIES, TREE_WORDS = range(6)  # words of `control`: blocks below USED were used, FREE begins a list of free ones


@kernel
def new_block(tree: Tree) -> int:
    block = tree.control[FREE]
    if block:
        tree.control[FREE] = tree.times[block * B]
    else:
        tree.control[USED] += 1
        block = tree.control[USED]
    tree.size[block] = 0
    return block


@kernel
def _free_block(tree: Tree, block: int) -> None:
    tree.times[block * B] = tree.control[FREE]
    tree.size[block] = -1
    tree.control[FREE] = block


@kernel
def position_in(tree: Tree, block: int, group: int, value: int) -> int:
    """The number of entries of the block that are not above (group, value)."""
    low, high = block * B, block * B + tree.size[block]
    while low < high:
        at = (low + high) >> 1
        if tree.group[at] < group or (tree.group[at] == group and tree.value[at] <= value):
            low = at + 1
        else:
            high = at
    return low - block * B


@kernel
def _descend(tree: Tree, group: int, value: int, path: Any) -> int:
    """The leaf to which the entry belongs; path: for each level the node, and the number of the child taken."""
    block = tree.control[ROOT]
    for level in range(tree.control[HEIGHT] - 1):
        child = max(position_in(tree, block, group, value) - 1, 0)
        path[PATH_WORDS * level + ON], path[PATH_WORDS * level + TAKEN] = block, child
        block = tree.times[block * B + child]
    return block


@kernel
def count_value(tree: Tree, group: int, value: int, more: int, path: Any) -> int:
    """Count the value once more (1) or less (-1). Returns its count then; -1 if it was not there."""
    leaf = _descend(tree, group, value, path)
    position = position_in(tree, leaf, group, value)
    at = leaf * B + position - 1
    if position > 0 and tree.group[at] == group and tree.value[at] == value:
        tree.times[at] += more
        left = tree.times[at]
        if left == 0:
            _remove(tree, leaf, position - 1, path)
        return left
    if more < 0:
        return -1
    _insert(tree, leaf, position, group, value, more, path)
    return more


@kernel
def _put(tree: Tree, block: int, position: int, group: int, value: int, count: int) -> None:
    first = block * B
    for i in range(first + tree.size[block], first + position, -1):
        tree.group[i], tree.value[i], tree.times[i] = tree.group[i - 1], tree.value[i - 1], tree.times[i - 1]
    at = first + position
    tree.group[at], tree.value[at], tree.times[at] = group, value, count
    tree.size[block] += 1


@kernel
def _cut(tree: Tree, block: int, position: int) -> None:
    tree.size[block] -= 1
    for i in range(block * B + position, block * B + tree.size[block]):
        tree.group[i], tree.value[i], tree.times[i] = tree.group[i + 1], tree.value[i + 1], tree.times[i + 1]


@kernel
def _move(tree: Tree, source: int, target: int, n: int) -> None:
    """Move n entries from one index to another, in the columns of all blocks."""
    if source > target:
        for i in range(n):
            s, t = source + i, target + i
            tree.group[t], tree.value[t], tree.times[t] = tree.group[s], tree.value[s], tree.times[s]
    else:
        for i in range(n - 1, -1, -1):
            s, t = source + i, target + i
            tree.group[t], tree.value[t], tree.times[t] = tree.group[s], tree.value[s], tree.times[s]


@kernel
def _insert(tree: Tree, block: int, position: int, group: int, value: int, count: int, path: Any) -> None:
    """Insert an entry into a leaf; full blocks are split, from there up."""
    tree.control[ENTRIES] += 1
    level = tree.control[HEIGHT] - 1
    while tree.size[block] == B:
        right, half = new_block(tree), B // 2
        _move(tree, block * B + half, right * B, B - half)
        tree.size[block], tree.size[right] = half, B - half
        if position > half:
            _put(tree, right, position - half, group, value, count)
        else:
            _put(tree, block, position, group, value, count)
        group, value, count = tree.group[right * B], tree.value[right * B], right
        level -= 1
        if level < 0:
            root = new_block(tree)
            _put(tree, root, 0, tree.group[block * B], tree.value[block * B], block)
            _put(tree, root, 1, group, value, count)
            tree.control[ROOT] = root
            tree.control[HEIGHT] += 1
            return
        block, position = path[PATH_WORDS * level + ON], path[PATH_WORDS * level + TAKEN] + 1
    _put(tree, block, position, group, value, count)


@kernel
def is_thin(tree: Tree, block: int) -> bool:
    return tree.size[block] < LEAST


@kernel
def _remove(tree: Tree, block: int, position: int, path: Any) -> None:
    """Remove an entry from a leaf; thin blocks are evened out or merged with a neighbour, from there up."""
    tree.control[ENTRIES] -= 1
    _cut(tree, block, position)
    level = tree.control[HEIGHT] - 1
    while level > 0 and is_thin(tree, block):
        leaves = level == tree.control[HEIGHT] - 1
        level -= 1
        parent, child = path[PATH_WORDS * level + ON], path[PATH_WORDS * level + TAKEN]
        if tree.size[parent] == 1:  # no neighbour
            if tree.size[block] > 0:
                break
            _free_block(tree, block)
            _cut(tree, parent, 0)
        elif not _level_out(tree, parent, min(child, tree.size[parent] - 2), leaves):
            break
        block = parent
    while tree.control[HEIGHT] > 1 and tree.size[tree.control[ROOT]] <= 1:
        root = tree.control[ROOT]
        if tree.size[root] == 0:  # the tree is empty
            tree.control[HEIGHT] = 1
            return
        tree.control[ROOT] = tree.times[root * B]
        tree.control[HEIGHT] -= 1
        _free_block(tree, root)


@kernel
def _level_out(tree: Tree, parent: int, number: int, leaves: bool) -> bool:
    """Merge children `number` and the next one, one of which is thin, or even them out. Returns whether they are one."""
    at = parent * B + number
    left, right = tree.times[at], tree.times[at + 1]
    first, second = tree.size[left], tree.size[right]
    if not leaves:  # the separator of the first child is not maintained
        tree.group[right * B], tree.value[right * B] = tree.group[at + 1], tree.value[at + 1]
    if first + second <= _TOGETHER:
        _move(tree, right * B, left * B + first, second)
        tree.size[left] = first + second
        _free_block(tree, right)
        _cut(tree, parent, number + 1)
        return True
    half = (first + second) // 2
    if first < half:
        _move(tree, right * B, left * B + first, half - first)
        _move(tree, right * B + half - first, right * B, second - (half - first))
    else:
        _move(tree, right * B, right * B + first - half, second)
        _move(tree, left * B + half, right * B, first - half)
    tree.size[left], tree.size[right] = half, first + second - half
    tree.group[at + 1], tree.value[at + 1] = tree.group[right * B], tree.value[right * B]
    return False


@kernel
def least(tree: Tree, group: int, path: Any) -> int:
    """The least value of a group that has values."""
    leaf = _descend(tree, group, SIGN, path)
    position = position_in(tree, leaf, group, SIGN)
    at = leaf * B + position
    if position > 0 and tree.group[at - 1] == group:  # then it is SIGN
        return tree.value[at - 1]
    level = tree.control[HEIGHT] - 2
    if position == tree.size[leaf]:  # the first entry of the next leaf
        while level >= 0 and path[PATH_WORDS * level + TAKEN] + 1 == tree.size[path[PATH_WORDS * level + ON]]:
            level -= 1
        block = tree.times[path[PATH_WORDS * level + ON] * B + path[PATH_WORDS * level + TAKEN] + 1]
        for _ in range(level + 1, tree.control[HEIGHT] - 1):
            block = tree.times[block * B]
        at = block * B
    return tree.value[at]


@kernel
def greatest(tree: Tree, group: int, path: Any) -> int:
    """The greatest value of a group that has values."""
    leaf = _descend(tree, group, ~SIGN, path)
    position = position_in(tree, leaf, group, ~SIGN)
    at = leaf * B + position - 1
    if position == 0:  # the last entry of the leaf before
        level = tree.control[HEIGHT] - 2
        while level >= 0 and path[PATH_WORDS * level + TAKEN] == 0:
            level -= 1
        block = tree.times[path[PATH_WORDS * level + ON] * B + path[PATH_WORDS * level + TAKEN] - 1]
        for _ in range(level + 1, tree.control[HEIGHT] - 1):
            block = tree.times[block * B + tree.size[block] - 1]
        at = block * B + tree.size[block] - 1
    return tree.value[at]
