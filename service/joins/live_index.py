"""What a live join keeps of a directed edge of its tree, and how it looks there: for partners, or only whether there is one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from service.join_tree import Edge
from service.joins.indexed_join import KeptIndex
from service.resolution import Slots
from service.sides import NO_ENTRIES, Codes, Side, Source
from service.store import Domain
from service.versions import Numbers
from structures.encoding import NEG_INF, POS_INF
from structures.interval_hits import have_partners
from structures.interval_tree import Cursor, Entries, IntervalTree, Root

Mask = npt.NDArray[np.bool_]


class PartIndex(KeptIndex):
    """Some rows of an index, by the codes of that one: it takes a row before its part does."""

    def __init__(self, source: Source, domain: Domain | None) -> None:
        self.source, self.domain = source, domain
        self.tree = IntervalTree("pair")
        self._look_up = self._acquire = domain.look_up if domain is not None else None

    def delete(self, version: int, slots: Slots) -> None:
        entries = self.source.entries(slots, self._look_up).entries
        if len(entries.slot):
            self.tree.apply(version, entries, NO_ENTRIES, None)

    def require(self, changes: int, keys: int, text_bytes: int) -> None:
        """A change of any alias may turn all rows out, and in again. What a version writes and drops is free at once."""
        self.tree.require(2 * self.source.side.relation.table.rows + changes, 1)

    def reclaim(self, oldest_needed: int, pins: Numbers) -> None:
        self.tree.reclaim(oldest_needed, pins)


class Link:
    """A directed edge: from rows of alias number `near` to their partners in `far`.

    number, back  its number, and its opposite's
    bit           of the masks of `near`
    probe         entries of near's rows, to be looked up
    whole, live   indexes over far's rows: all, and those that are live away from near
    keyed         partners are told by equality alone
    """

    def __init__(self, number: int, edge: Edge, sides: Sequence[Side], bit: int, whole: KeptIndex, live: KeptIndex) -> None:
        self.number, self.back = number, number ^ 1
        self.near, self.far, self.bit = edge.near, edge.far, bit
        self.probe = Source(sides[edge.near], 1, edge.near_columns, edge.near_span)
        self.whole, self.live = whole, live
        self.keyed = edge.far_span is None

    def partners(self, slots: Slots) -> Cursor:
        """(slots of far, slots of near): all partners of these rows, whether live or not, in the newest version."""
        return self.whole.tree.partners(self.whole.tree.root, self.probe.entries(slots, _codes(self.whole)).entries)

    def partnered(self, root: Root, slots: Slots) -> Mask:
        """bool[n]: which of these rows have a partner in this version of the live index."""
        return hits(self.live, root, self.probe, slots)


def hits(index: KeptIndex, root: Root, probe: Source, slots: Slots) -> Mask:
    """bool[n]: which of these rows, as entries of `probe`, meet one of the index. Cost: O(log n) a row, and its key's look-up."""
    entries, places = probe.entries(slots, _codes(index))
    met = have_partners(index.tree, root, entries)
    if places is None:
        return met
    mask = np.zeros(len(slots), np.bool_)
    mask[places] = met
    return mask


def of_code(index: KeptIndex, root: Root, code: int) -> Cursor:
    """(slots, zeros): the index's rows with this code of the key; 0 of an index without one."""
    if code < 0:
        return index.tree.partners(root, NO_ENTRIES)
    ends = np.array([NEG_INF]), np.array([POS_INF])
    return index.tree.partners(root, Entries(np.ones(1, np.uint8), np.array([code], np.int32), *ends, np.zeros(1, np.int32)))


def _codes(index: KeptIndex) -> Codes | None:
    return index.domain.look_up if index.domain is not None else None
