"""What joins over indexes share: their version, and how a batch goes through the aliases.

Alias by alias: all deletes while the later aliases still have theirs, then all inserts, so that each row of the delta falls to exactly one
of its parts. A changed row's rows are told before it goes, and after it has come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from service.binding import Binding
from service.joins.changes import Change, Parted, parted
from service.joins.indexed_cursor import Given, IndexedCursor
from service.joins.kept_index import SideIndex
from service.joins.protocol import Sink
from service.resolution import Resolved, Slots
from service.sides import Side
from service.versions import Numbers
from structures.interval_tree import Root

CHUNK = 1 << 16  # rows in a step of building, or of a delta


class IndexedRoot(NamedTuple):
    """One version: of the relations, and of each index."""

    version: int
    roots: tuple[Root, ...]


class OverIndexes:
    """`indexes`: number i belongs to the steps of `binding` that have this number; what is beyond them is the subclass's own."""

    def __init__(self, sides: Sequence[Side], binding: Binding, never: bool) -> None:
        self.sides, self.binding, self.never = list(sides), binding, never
        self.indexes: Sequence[SideIndex] = []
        self.update_steps = 0  # bindings looked at and look-ups, in all changes so far
        self._version = 0

    @property
    def root(self) -> IndexedRoot:
        return IndexedRoot(self._version, tuple(index.tree.root for index in self.indexes))

    def require(self, resolved: Mapping[str, Resolved]) -> None:
        if not any(side.relation.name in resolved for side in self.sides):
            return
        for index in self.indexes:
            one = resolved.get(index.source.side.relation.name)
            if one is None:
                index.require(0, 0, 0)
            else:
                index.require(len(one.deletes) + one.inserts.num_rows, one.inserts.num_rows, one.inserts.get_total_buffer_size())

    def apply(self, version: int, changes: Mapping[str, Change], sink: Sink | None) -> None:
        self._version = version
        if self.never:
            return
        parts: dict[int, Parted] = {}
        for side in self.sides:
            change = changes.get(side.relation.name)
            if change is not None:
                parts[side.place] = part = parted(side, change, sink is not None)
                if len(part.before):
                    self._move(version, side, part.before, part.after)
        for place, part in parts.items():
            if len(slots := self.sides[place].chosen(part.old)):
                sink = self._tell(sink, False, place, slots)
                self._leave(version, place, slots)
        for place, part in parts.items():
            if len(slots := self.sides[place].chosen(part.new)):
                self._enter(version, place, slots)
                sink = self._tell(sink, True, place, slots)

    def _move(self, version: int, side: Side, before: Slots, after: Slots) -> None:
        """Rows that keep all that the view uses, from slot to slot; perhaps some that do not meet the filters."""
        raise NotImplementedError

    def _leave(self, version: int, place: int, slots: Slots) -> None:
        """Rows of an alias that meet its filters go."""
        raise NotImplementedError

    def _enter(self, version: int, place: int, slots: Slots) -> None:
        """Rows of an alias that meet its filters come."""
        raise NotImplementedError

    def _promising(self, place: int, slots: Slots) -> Slots:
        """Those of these changed rows that are worth a search for rows of the view."""
        return slots

    def _tell(self, sink: Sink | None, come: bool, place: int, slots: Slots) -> Sink | None:
        """The rows of these changed ones, as the indexes stand; None once the sink wants no more."""
        if sink is None:
            return None
        cursor = IndexedCursor(self, self.root, place, Given(self._promising(place, slots)), None)
        wanted = True
        while wanted and not cursor.done:
            rows = cursor.fill(CHUNK)
            wanted = len(rows[0]) == 0 or sink(come, rows)
        self.update_steps += cursor.steps
        return sink if wanted else None

    def rows_of(self, side: Side, version: int) -> list[Slots]:
        """The rows that meet the side's filters, in pieces."""
        parts, start = [], 0
        while start >= 0:
            slots, start = side.relation.table.scan(version, start, CHUNK)
            parts.append(side.chosen(slots))
        return parts

    def reclaim(self, oldest_needed: int, pins: Numbers) -> None:
        for index in self.indexes:
            index.reclaim(oldest_needed, pins)

    def entries(self, root: IndexedRoot) -> int:
        return sum(one.count0 for one in root.roots)

    @property
    def bytes(self) -> int:
        return sum(index.bytes for index in self.indexes)

    @property
    def retired_bytes(self) -> int:
        return sum(index.tree.retired_bytes for index in self.indexes)

    def check(self) -> None:
        for index in self.indexes:
            index.check()
