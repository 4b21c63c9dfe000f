"""Checks of the quadtrees' invariants (`layout.py`), for tests: slow, plain Python, independent of the writing code."""

from __future__ import annotations

from structures.core.check import check_blocks
from structures.quadtree.compact import CODE, LEAVES, LEVEL_WORDS, LOWEST, NEVER, NODE_WORDS, NODES, SIZES, TABLE, CompactForms, Form
from structures.quadtree.layout import CODE_BITS, ENTRIES, HEAD, LEAF, LEAF_MARK, LOW, MARK, QuadArena, QuadtreeShape, live_child

Entry = tuple[int, ...]
Root = tuple[int, int, int, int]


def _quadrant(entry: Entry, arity: int, first: int, level: int) -> int:
    if level >= 0:
        part = entry[first:-1] if level < CODE_BITS else entry[:first]
        return int("".join(str(coordinate >> level % CODE_BITS & 1) for coordinate in part), 2)
    levels = -(-CODE_BITS // arity)
    assert level >= -levels, "Q1: a node below the last bit of the slots"
    padded = f"{entry[-1]:0{levels * arity}b}"
    position = (-level - 1) * arity
    return int(padded[position : position + arity], 2)


class _Reader:
    """Reads one version of a tree."""

    def __init__(self, arena: QuadArena, forms: CompactForms, root: Root, shape: QuadtreeShape, seen: dict[int, int]) -> None:
        self.W, self.compact, self.packed, self.base, self.shape, self.seen = arena.W, forms.compact, forms.packed, root[2], shape, seen
        self.top = root[1] - 1 + (CODE_BITS if shape[1] else 0)
        self.bits = root[1]
        # Counts in the compact form, as far as they were needed: inner children and leaves before each place; entries before each leaf.
        self.ranks: tuple[list[int], list[int]] = ([0], [0])
        self.sizes = [0]

    def entries(self, o: int, level: int) -> list[Entry]:
        """Return the entries of the subtree at place o, after proving its invariants."""
        if o < 0:
            index, leaf = divmod(-1 - o, 2)
            return self._leaf(index, level) if leaf else self._inner(o, level, self._children(index))
        arity = self.shape[0]
        count, mark = self.W[2 * o + ENTRIES : 2 * o + HEAD].tolist()
        self.seen[o] = 2 * (arity - 1) + (mark == LEAF_MARK)
        if mark == LEAF_MARK:
            assert 1 <= count <= LEAF, f"Q2: leaf {o} has {count} entries"
            return [tuple(self.W[2 * o + HEAD + i : 2 * o + HEAD + (arity + 1) * LEAF : LEAF].tolist()) for i in range(count)]
        children = [int(live_child(self.W, o, c)) for c in range(1 << arity)]
        for c, child in enumerate(children):
            assert (child != 0) == bool(mark >> c & 1), f"Q3: node {o} is wrong about there being a child {c}"
            leaf = (self.W[2 * child + MARK] == LEAF_MARK if child > 0 else ~child & 1) if child else False
            assert leaf == bool(count >> c & 1), f"Q3: node {o} is wrong about child {c} being a leaf"
        return self._inner(o, level, children)

    def _inner(self, o: int, level: int, children: list[int]) -> list[Entry]:
        found: list[Entry] = []
        for c, child in enumerate(children):
            if child:
                below = self.entries(child, self.bits - 1 if level == CODE_BITS else level - 1)
                assert all(_quadrant(entry, *self.shape, level) == c for entry in below), (
                    f"Q1: child {c} of node {o} has an entry of another"
                )
                found += below
        assert len(found) > LOW, f"Q2: node {o} has {len(found)} entries"
        return found

    def _bit(self, kind: int, position: int) -> int:
        return int(self.compact[self.compact[self.base + NODES] + kind + NODE_WORDS * (position // 64)]) >> position % 64 & 1

    def _rank(self, kind: int, position: int) -> int:
        """Count the bits of a kind before `position` anew."""
        ranks = self.ranks[kind - 1]
        while len(ranks) <= position:
            ranks.append(ranks[-1] + self._bit(kind, len(ranks) - 1))
        return ranks[position]

    def _size(self, index: int) -> int:
        """Return the number of entries in the leaves before this one."""
        leaves = int(self.compact[self.base + LEAVES])
        while len(self.sizes) <= index:
            q = len(self.sizes) - 1
            self.sizes.append(self.sizes[-1] + 1 + (int(self.compact[leaves + q // SIZES]) >> 4 * (q % SIZES) & 15))
        return self.sizes[index]

    def _children(self, index: int) -> list[int]:
        """Return the places of a compact node's children."""
        first, children = index << self.shape[0], []
        for position in range(first, first + (1 << self.shape[0])):
            inner, leaf = self._bit(1, position), self._bit(2, position)
            assert not inner or not leaf, f"Q3: child {position} of compact nodes is both"
            children.append(-3 - 2 * self._rank(1, position) if inner else -2 - 2 * self._rank(2, position) if leaf else 0)
        return children

    def _leaf(self, index: int, level: int) -> list[Entry]:
        """Return the entries of a compact leaf, decoded bit by bit in the order in which they were written."""
        arity, first = self.shape
        code = int(self.compact[self.base + CODE])
        size = self._size(index + 1) - self._size(index)
        q0, entry0, at = self.compact[self.base + TABLE + LEVEL_WORDS * (level - LOWEST) :][:LEVEL_WORDS].tolist()
        assert q0 <= index and entry0 == self._size(q0), f"Q1: the table of level {level} is wrong"
        low = [0] * arity
        for j in range(arity):
            if level >= CODE_BITS:
                low[j] = level - CODE_BITS + 1 if j < first else code
            elif j >= first:
                low[j] = max(0, level + 1)
        together = sum(low) <= 32
        whole, *widths = (next(width for width in (0, 1, 2, 4) if 8 * width >= bits) for bits in (code, *([sum(low)] if together else low)))
        at += (index - q0) * arity * whole + (self._size(index) - entry0) * (sum(widths) + 4)
        read = self.packed[at : at + arity * whole + size * (sum(widths) + 4)].tobytes()
        columns, at = [], arity * whole
        for width in (*widths, 4):
            columns.append([int.from_bytes(read[at + i * width : at + (i + 1) * width], "little") for i in range(size)])
            at += width * size
        if together:
            columns[:1] = [[one >> sum(low[:j]) & (1 << low[j]) - 1 for one in columns[0]] for j in range(arity)]
        for j in range(arity):
            high = int.from_bytes(read[j * whole : (j + 1) * whole], "little")
            columns[j] = [high | one for one in columns[j]]
        return list(zip(*columns, strict=True))


def entries_of(arena: QuadArena, forms: CompactForms, root: Root, shape: QuadtreeShape, seen: dict[int, int]) -> list[Entry]:
    """Return all entries of one version of a tree, after proving its invariants."""
    position, bits, _, count = root
    reader = _Reader(arena, forms, root, shape, seen)
    found = reader.entries(position, reader.top) if position else []
    assert len(found) == count, f"Q2: a root says {count} entries, and has {len(found)}"
    assert len(set(found)) == count, "Q1: an entry is there twice"
    assert all(0 <= coordinate < 1 << bits for entry in found for coordinate in entry[:-1]), "Q1: a coordinate is out of reach"
    return found


def check_forms(kept: list[Form], roots: tuple[tuple[Root, ...], ...]) -> None:
    """Prove I2 and I3 for the compact forms. `roots`: the newest version's last."""
    bases = {form.base for form in kept}
    for _, _, base, _ in (root for version in roots for root in version):
        assert base == 0 or base in bases, f"I2: the compact form at {base} is in use, and given back"
    for one, other in zip(kept, kept[1:], strict=False):
        assert one.end <= other.base, f"I2: the compact forms at {one.base} and {other.base} overlap"
    newest, used = sorted(base for _, _, base, _ in roots[-1] if base), [form.base for form in kept if form.retired == NEVER]
    assert used == newest, f"I3: the compact forms at {used} are not retired, those at {newest} are in use"


def check_quads(
    arena: QuadArena,
    forms: CompactForms,
    shapes: tuple[QuadtreeShape, ...],
    roots: tuple[tuple[Root, ...], ...],
) -> None:
    """Prove Q1 to Q3 for these versions, and I3 if all roots in use are passed."""
    check_forms(forms.forms, roots)
    seen: dict[int, int] = {}
    for version in roots:
        for root, shape in zip(version, shapes, strict=True):
            entries_of(arena, forms, root, shape, seen)
    check_blocks(arena, seen)
