"""A tree-shaped join without dead ends: its indexes hold only rows that have partners further out.

Of a directed edge (u -> w) of the join's tree, `live` holds the rows of w that are live away from u: each other neighbour z of w has
a partner for them in the live index of (w -> z). So from a row that has a partner in each direction every step outward ends in rows:
whole views, look-ups and deltas. Besides, `whole` holds all rows of w, to find those whose liveness a change may turn.

      u ------ w ------ z       a row of w is in live(u -> w)  iff  it has partners in live(w -> z) and in live(w -> y)
                \\------ y

Each alias keeps, by slot, a mask of the directions in which a row has a partner. Invariants of the newest version, after each part of
a batch:
    J1  bit w of a row of v is set iff live(v -> w) has a partner of it; what is no row of the view's alias has no bit
    J2  live(u -> v) holds the rows of v that have all bits but perhaps that of u, of those that its key and span let in
    J3  `full` holds the rows of alias 0 that have all bits: those that take part in rows of the view
    J4  whole(u -> v) holds all rows of v that its key and span let in
What is live away from v does not depend on v's own rows: a changed row's rows are told before it goes, and after it has come. When it
enters or leaves live(u -> v), the bit v of its partners in whole(v -> u) may turn, and these enter or leave live(p -> u), p != v:
outward, each alias once. A bit is taken away only after a look for another live partner. Old versions read indexes, never masks.

Costs: space O(n); a change O(log n) a partner of the changed row and of the rows whose liveness it turned, but on an edge by equality
alone only for keys that had no live row before, or have none left; delay O(log n). Of two aliases, partners are rows of the delta.
Source: Yannakakis' algorithm, kept live (Idris, Ugarte and Vansummeren, The Dynamic Yannakakis Algorithm), over any edge that one index
answers (`ij-heap.md`, Overlaps together with equality).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from service.binding import Index
from service.join_tree import Edge, binding_of
from service.joins.indexed_cursor import Found, Given, IndexedCursor, Scan, Start
from service.joins.kept_index import KeptIndex, PartIndex
from service.joins.live_index import Link, Mask, hits, of_code
from service.joins.over_indexes import CHUNK, IndexedRoot, OverIndexes
from service.joins.protocol import Bounds
from service.resolution import NO_SLOTS, Slots
from service.sides import Side, Source
from structures.reserve import reserve
from structures.rows import SLOTS


class Alive:
    """Those of alias number `place` that take part in rows of the version."""

    def __init__(self, join: LiveJoin, root: IndexedRoot, place: int, start: Start) -> None:
        self._join, self._root, self._place, self._start = join, root, place, start

    @property
    def done(self) -> bool:
        return self._start.done

    def fill(self, limit: int) -> Slots:
        return self._join.alive(self._root, self._place, self._start.fill(limit))

    def clone(self) -> Alive:
        other = copy.copy(self)
        other._start = self._start.clone()
        return other


class LiveJoin(OverIndexes):
    """See the module's head. `indexes`: of each link the live one, by its number; then `full`; then those that are no live one."""

    def __init__(self, sides: Sequence[Side], tree: Sequence[Edge], never: bool) -> None:
        """`tree`: each edge followed by its opposite."""
        super().__init__(sides, binding_of(tree, len(sides)), never)
        self._whole: list[list[KeptIndex]] = [[] for _ in sides]
        by_index: dict[Index, KeptIndex] = {}
        self.links: list[Link] = []
        for number, edge in enumerate(tree):
            index = self.binding.indexes[number]
            if index not in by_index:
                by_index[index] = KeptIndex(sides[edge.far], index)
                self._whole[edge.far].append(by_index[index])
            whole = by_index[index]
            outer = sum(one.near == edge.far for one in tree) == 1  # all its rows are live
            bit = 1 << sum(one.near == edge.near for one in tree[:number])
            self.links.append(Link(number, edge, sides, bit, whole, whole if outer else PartIndex(whole.source, whole.domain)))
        self.out = [[link for link in self.links if link.near == side.place] for side in sides]
        self.all = [(1 << len(links)) - 1 for links in self.out]
        self.full = PartIndex(Source(sides[0], 0, (), None), None)
        live = [link.live for link in self.links]
        self._beside = [[one for one in wholes if one not in live] for wholes in self._whole]
        self.indexes = [*live, self.full, *(one for beside in self._beside for one in beside)]
        self.masks = [reserve(SLOTS, np.uint8) for _ in sides] if not never else []

    # --- writing

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        """Cost: O(n log n)."""
        self._version = version
        if self.never:
            return
        rows = [self.rows_of(side, version) for side in self.sides]
        for parts, wholes in zip(rows, self._whole, strict=True):
            for whole in wholes:
                whole.load(version, parts)
        for done, link in enumerate(self.inward()):
            if isinstance(link.live, PartIndex):
                link.live.load(version, [self._live_away(link.back, slots) for slots in rows[link.far]])
            for slots in rows[link.near]:
                self.masks[link.near][slots[link.partnered(link.live.tree.root, slots)]] |= link.bit
            progress((done + 1) / len(self.links))
        self.full.load(version, [slots[self.masks[0][slots] == self.all[0]] for slots in rows[0]])

    def inward(self) -> list[Link]:
        """The links, each after those that its live index depends on."""
        order: list[Link] = []
        while len(order) < len(self.links):
            order += [
                link
                for link in self.links
                if link not in order and all(one in order for one in self.out[link.far] if one.number != link.back)
            ]
        return order

    def _live_away(self, towards: int, slots: Slots) -> Slots:
        """Those of these rows of a link's near alias that are live away from its far one."""
        link = self.links[towards]
        alive: Slots = slots[self.masks[link.near][slots] | link.bit == self.all[link.near]]
        return alive

    def _promising(self, place: int, slots: Slots) -> Slots:
        alive: Slots = slots[self.masks[place][slots] == self.all[place]]
        return alive

    def _move(self, version: int, side: Side, before: Slots, after: Slots) -> None:
        places = side.selected(after)
        if places is not None:
            before, after = before[places], after[places]
        mask, place = self.masks[side.place], side.place
        had = mask[before]
        for whole in self._whole[place]:
            whole.move(version, before, after)
        parts = [(self.links[link.back].live, had | link.bit) for link in self.out[place]]
        for index, bits in [*parts, *([(self.full, had)] if place == 0 else [])]:
            if isinstance(index, PartIndex):
                held = bits == self.all[place]
                index.move(version, before[held], after[held])
        mask[before] = 0
        mask[after] = had

    def _enter(self, version: int, place: int, slots: Slots) -> None:
        mask = self.masks[place]
        # The bits first: they ask for outer rows alone, which these rows do not change, and all that follows asks for them.
        for link in self.out[place]:
            mask[slots[self._partnered(link, slots)]] |= link.bit
        # A whole before its parts: a part finds only the codes that the whole has taken.
        for whole in self._beside[place]:
            whole.insert(version, slots)
        if place == 0:
            self.full.insert(version, slots[mask[slots] == self.all[0]])
        for link in self.out[place]:
            self._turn(version, link, self._live_away(link.number, slots), True)

    def _leave(self, version: int, place: int, slots: Slots) -> None:
        mask = self.masks[place]
        # The parts go after their whole and still find its codes: one that it has released stays known until `reclaim`. Nobody looks into
        # this alias's wholes meanwhile, as all that follows goes outward.
        for whole in self._beside[place]:
            whole.delete(version, slots)
        if place == 0:
            self.full.delete(version, slots[mask[slots] == self.all[0]])
        for link in self.out[place]:
            self._turn(version, link, self._live_away(link.number, slots), False)
        mask[slots] = 0  # last: until here the bits say in which parts the rows are

    def _partnered(self, link: Link, slots: Slots) -> Mask:
        """As `Link.partnered`, in the newest version."""
        self.update_steps += len(slots)
        return link.partnered(link.live.tree.root, slots)

    def _turn(self, version: int, link: Link, slots: Slots, come: bool) -> None:
        """Rows of the link's near alias become live away from its far one (`come`), or die; and what follows, outward."""
        waiting = [(link, slots)]  # in any order: in a tree each alias is reached by one way
        while waiting:
            link, slots = waiting.pop()
            if len(slots) == 0:
                continue
            turned = self._turned(link, self._put(version, link, slots, come), come)
            place = link.far
            # With the turned bit: as they were until it was taken, or are since it was given.
            bits = self.masks[place][turned] | self.links[link.back].bit
            if place == 0:
                some = turned[bits == self.all[0]]
                (self.full.insert if come else self.full.delete)(version, some)
            for further in self.out[place]:
                if further.number != link.back:
                    waiting.append((further, turned[bits | further.bit == self.all[place]]))

    def _put(self, version: int, link: Link, slots: Slots, come: bool) -> Slots:
        """Rows of the near alias into, or out of, the live index that the far one looks into; those whose partners may turn: by equality
        alone one of each key that no other live row has."""
        index = self.links[link.back].live
        self.update_steps += len(slots)
        if not link.keyed:
            (index.insert if come else index.delete)(version, slots)
            return slots
        # Who else is there: before the rows come, and after they have gone, or they would find themselves.
        if come:
            crowded = hits(index, index.tree.root, link.probe, slots)
            index.insert(version, slots)
        else:
            index.delete(version, slots)
            crowded = hits(index, index.tree.root, link.probe, slots)
        assert index.domain is not None
        entries = link.probe.entries(slots[~crowded], index.domain.look_up).entries
        heads: Slots = entries.slot[np.unique(entries.key, return_index=True)[1]]
        return heads

    def _turned(self, link: Link, slots: Slots, come: bool) -> Slots:
        """The far rows whose bit turns because of these near ones, which have come to the live index, or have left it, already.

        A bit is turned as soon as its row is found, so each is found once, though it has several partners: the cursor runs over the whole
        index, which knows no bits and does not change meanwhile.
        """
        back = self.links[link.back]
        mask, parts = self.masks[link.far], [NO_SLOTS]
        cursor = link.partners(slots)
        while not cursor.done:
            found = cursor.fill(CHUNK)[0]
            found = np.unique(found[((mask[found] & back.bit) == 0) == come])
            mask[found] ^= back.bit
            parts.append(found)
        self.update_steps += cursor.steps
        turned = np.concatenate(parts)
        if come or link.keyed:
            return turned
        # Some have another live partner, and keep their bit.
        kept = self._partnered(back, turned)
        mask[turned[kept]] |= back.bit
        return turned[~kept]

    # --- reading

    def alive(self, root: IndexedRoot, place: int, slots: Slots) -> Slots:
        """Those of these rows that take part in rows of the version. Cost: O(log n) a row."""
        for link in self.out[place]:
            slots = slots[link.partnered(root.roots[link.number], slots)]
        return slots

    def rows(self, root: IndexedRoot, window: Bounds | None) -> IndexedCursor:
        return IndexedCursor(self, root, 0, Found(of_code(self.full, root.roots[len(self.links)], 0)), window)

    def partners(self, root: IndexedRoot, place: int, slots: Slots, window: Bounds | None) -> IndexedCursor:
        return IndexedCursor(self, root, place, Alive(self, root, place, Given(self.sides[place].chosen(slots))), window)

    def of_key(self, root: IndexedRoot, place: int, key: pa.RecordBatch, window: Bounds | None) -> IndexedCursor:
        """Where no index has just these columns, all rows of the alias are looked through."""
        start: Start = Scan(self.sides[place], root.version, key)
        for link in self.links:
            domain, columns = link.live.domain, link.live.source.columns
            if link.far == place and domain is not None and set(columns) == set(key.schema.names):
                start = Found(of_code(link.live, root.roots[link.number], int(domain.look_up(key.select(columns))[0])))
        return IndexedCursor(self, root, place, Alive(self, root, place, start), window)

    def surely_empty(self, root: IndexedRoot) -> bool:
        return root.roots[len(self.links)].count0 == 0

    @property
    def bytes(self) -> int:
        return super().bytes + sum(side.relation.table.rows for side in self.sides)  # a byte of mask a row

    def check(self) -> None:
        from service.joins.live_check import check_live

        super().check()
        if not self.never:
            check_live(self, self._version)
