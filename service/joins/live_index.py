"""What a live join keeps of a directed edge of its tree, and how it looks there: for partners, or only whether there is one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from service.join_tree import Edge
from service.joins.kept_index import KeptIndex, SideIndex
from service.resolution import Slots
from service.sides import NO_ENTRIES, Side, Source
from structures.encoding import NEG_INF, POS_INF
from structures.interval_hits import have_partners
from structures.interval_tree import Cursor, Entries, Root

Mask = npt.NDArray[np.bool_]


class Link:
    """A directed edge: from rows of alias number `near` to their partners in `far`.

    number, back  its number, and its opposite's
    bit           of the masks of `near`
    probe         entries of near's rows, to be looked up
    whole, live   indexes over far's rows: all, and those that are live away from near
    keyed         partners are told by equality alone
    """

    def __init__(self, number: int, edge: Edge, sides: Sequence[Side], bit: int, whole: KeptIndex, live: SideIndex) -> None:
        self.number, self.back = number, number ^ 1
        self.near, self.far, self.bit = edge.near, edge.far, bit
        self.probe = Source(sides[edge.near], 1, edge.near_columns, edge.near_span)
        self.whole, self.live = whole, live
        self.keyed = edge.far_span is None

    def partners(self, slots: Slots) -> Cursor:
        """(slots of far, slots of near): all partners of these rows, whether live or not, in the newest version."""
        return self.whole.tree.partners(self.whole.tree.root, self.probe.entries(slots, self.whole.codes).entries)

    def partnered(self, root: Root, slots: Slots) -> Mask:
        """bool[n]: which of these rows have a partner in this version of the live index."""
        return hits(self.live, root, self.probe, slots)


def hits(index: SideIndex, root: Root, probe: Source, slots: Slots) -> Mask:
    """bool[n]: which of these rows, as entries of `probe`, meet one of the index. Cost: O(log n) a row, and its key's look-up."""
    entries, places = probe.entries(slots, index.codes)
    met = have_partners(index.tree, root, entries)
    if places is None:
        return met
    mask = np.zeros(len(slots), np.bool_)
    mask[places] = met
    return mask


def of_code(index: SideIndex, root: Root, code: int) -> Cursor:
    """(slots, zeros): the index's rows with this code of the key; 0 of an index without one."""
    if code < 0:
        return index.tree.partners(root, NO_ENTRIES)
    ends = np.array([NEG_INF]), np.array([POS_INF])
    return index.tree.partners(root, Entries(np.ones(1, np.uint8), np.array([code], np.int32), *ends, np.zeros(1, np.int32)))
