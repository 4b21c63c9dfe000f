"""One alias's entries in an interval tree, ordered by key and span: in which a bound row's partners are found in O(log n)."""

from __future__ import annotations

from collections.abc import Sequence

from service.binding import Index
from service.resolution import Slots
from service.sides import NO_ENTRIES, Codes, Side, Source, joined
from service.store import Domain
from service.versions import Numbers
from structures.interval_tree import Entries, IntervalTree

_CALLS = 3  # of a tree's `apply` a version: moves, deletes, inserts


class SideIndex:
    """What both kinds share. `taken` gives the codes of rows that come."""

    def __init__(self, source: Source, domain: Domain | None, taken: Codes | None) -> None:
        self.source, self.domain = source, domain
        self.tree = IntervalTree("pair")  # of which set 1 stays empty: it is only looked up
        self.codes: Codes | None = domain.look_up if domain is not None else None
        self._taken = taken

    def load(self, version: int, parts: Sequence[Slots]) -> None:
        entries = joined([self.source.entries(slots, self._taken).entries for slots in parts])
        if len(entries.slot):
            self.tree.bulk_load(version, entries)

    def insert(self, version: int, slots: Slots) -> None:
        entries = self.source.entries(slots, self._taken).entries
        if len(entries.slot):
            self.tree.apply(version, NO_ENTRIES, entries, None)

    def delete(self, version: int, slots: Slots) -> Entries:
        entries = self.source.entries(slots, self.codes).entries
        if len(entries.slot):
            self.tree.apply(version, entries, NO_ENTRIES, None)
        return entries

    def move(self, version: int, before: Slots, after: Slots) -> None:
        """Rows that keep all that the view uses, from slot to slot."""
        chosen = self.source.entries(after, self.codes)
        if len(chosen.entries.slot):
            old = before if chosen.places is None else before[chosen.places]
            self.tree.apply(version, chosen.entries._replace(slot=old), chosen.entries, None)

    def require(self, changes: int, keys: int, text_bytes: int) -> None:
        """MemoryError unless so many changes of its alias, and all that those of others bring about, surely fit."""
        raise NotImplementedError

    def reclaim(self, oldest_needed: int, pins: Numbers) -> None:
        self.tree.reclaim(oldest_needed, pins)

    @property
    def bytes(self) -> int:
        return int(self.tree.live_bytes())

    def check(self) -> None:
        self.tree.check(self.tree.root)


class PartIndex(SideIndex):
    """Some rows of an index, by the codes of that one's domain: it takes a row before its part does."""

    def __init__(self, source: Source, domain: Domain | None) -> None:
        super().__init__(source, domain, domain.look_up if domain is not None else None)

    def require(self, changes: int, keys: int, text_bytes: int) -> None:
        """A change of any alias may turn all rows out, and in again. What a version writes and drops is free at once."""
        self.tree.require(2 * self.source.side.relation.table.rows + changes, 1)


class KeptIndex(SideIndex):
    """All rows of a side, and the domain of their keys."""

    def __init__(self, side: Side, index: Index) -> None:
        types = [side.relation.schema.field(name).type for name in index.columns]
        domain = Domain(types) if types else None
        super().__init__(Source(side, 0, index.columns, index.span), domain, domain.acquire if domain is not None else None)

    def delete(self, version: int, slots: Slots) -> Entries:
        entries = super().delete(version, slots)
        if self.domain is not None and len(entries.slot):
            self.domain.release(entries.key, version)
        return entries

    def require(self, changes: int, keys: int, text_bytes: int) -> None:
        self.tree.require(changes, _CALLS)
        if self.domain is not None:
            self.domain.require(keys, text_bytes)

    def reclaim(self, oldest_needed: int, pins: Numbers) -> None:
        super().reclaim(oldest_needed, pins)
        if self.domain is not None:
            self.domain.reclaim(oldest_needed, pins)

    @property
    def bytes(self) -> int:
        return super().bytes + (self.domain.bytes if self.domain is not None else 0)

    def check(self) -> None:
        super().check()
        if self.domain is not None:
            self.domain.check()
