"""Proof of a live join's invariants, for tests and `livejoin check`: liveness anew from the whole indexes, pair by pair."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from service.joins.kept_index import SideIndex
from service.joins.live_index import of_code
from service.resolution import NO_SLOTS, Slots

if TYPE_CHECKING:
    from service.joins.live_join import LiveJoin

_CHUNK = 1 << 16


def check_live(join: LiveJoin, version: int) -> None:
    """AssertionError names the invariant (`live_join`). Cost: O(log n) a pair of partners."""
    rows = [np.concatenate(join.rows_of(side, version)) for side in join.sides]
    ends = [int(slots.max()) + 1 if len(slots) else 0 for slots in rows]
    bits = [np.zeros(end, np.uint8) for end in ends]
    for link in join.inward():
        away = rows[link.far][bits[link.far][rows[link.far]] | join.links[link.back].bit == join.all[link.far]]
        _check_content(link.whole, rows[link.far], f"J4: the whole index of link {link.number}")
        _check_content(link.live, away, f"J2: the live index of link {link.number}")
        live = np.zeros(ends[link.far], np.bool_)
        live[away] = True
        cursor = link.partners(rows[link.near])
        while not cursor.done:
            far, near = cursor.fill(_CHUNK)
            bits[link.near][near[live[far]]] |= link.bit
    for place, expected in enumerate(bits):
        assert np.array_equal(join.masks[place][: ends[place]], expected), f"J1: the masks of alias {place}"
    _check_content(join.full, rows[0][bits[0][rows[0]] == join.all[0]], "J3: the full rows")


def _check_content(index: SideIndex, slots: Slots, what: str) -> None:
    """It holds these rows, of those that its key and span let in, and no others."""
    entries = index.source.entries(slots, index.codes).entries
    root, found = index.tree.root, [NO_SLOTS]
    for code in np.unique(entries.key).tolist():
        cursor = of_code(index, root, code)
        while not cursor.done:
            found.append(cursor.fill(_CHUNK)[0])
    assert np.array_equal(np.sort(np.concatenate(found)), np.sort(entries.slot)) and root.count0 == len(entries.slot), f"{what} differs"
