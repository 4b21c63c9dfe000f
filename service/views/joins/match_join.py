"""EXISTS, NOT EXISTS, LEFT and FULL JOIN on one condition of intervals, on equalities, or on both.

    core   of LEFT and FULL JOIN the inner join; else there is none
    alone  of each alias whose rows are told alone, the list of these: of EXISTS the rows with a partner, else those without

LEFT and FULL JOIN of intervals of two relations are kept by an `OuterTree`, over the tree of the core: it counts partners by the core's
delta. Else a `Matching` keeps the rows alone, and the core's own class the core. By equalities alone all entries lie in one interval.

A row that no condition can hold for (a null, or a filter of the part) is entered under a key that no partner has. Costs: O(log n) a changed
row, and a row that gains its first or loses its last partner; those of the core besides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from service.planning.plans.plan import Counted, Kept, Outer
from service.tables.changes import Runs
from service.tables.resolution import Resolved, Slots
from service.tables.sides import Side, Source
from service.tables.store import FREED_AT_ONCE, Domain, Numbers
from service.views.deltas import Combination, Sink, told_rows
from service.views.joins.indexed_cursor import Scan
from service.views.joins.outer_cursor import Chained, Looked, Scanned, Shown
from service.views.joins.outer_join import widened
from service.views.joins.overlap_join import OverlapJoin
from service.views.joins.protocol import Bounds, Defaults, Enumeration, Join
from service.views.joins.slots_cursor import SlotsCursor
from service.views.joins.two_sides import Rows, TwoSides
from structures.core.entries import Entries
from structures.core.entry_tree import Root as ListRoot
from structures.event_tree.lists import RowList
from structures.event_tree.matching import LONELY, Matching
from structures.interval.cursors import GivenCursor
from structures.outer.tree import OuterTree

_NO_ROWS = np.empty((1, 0), np.int32)


class Root(NamedTuple):
    """A version: of the relations, of the core, if there is one, and of each list."""

    version: int
    core: Any
    alone: tuple[ListRoot, ...]


class Alone(NamedTuple):
    """The rows of an alias that are told alone: by which source they are entries, their domain, and their list."""

    rows: Rows
    source: Source
    domain: Domain | None
    list: RowList

    def entries(self, slots: Slots) -> Entries:
        return self.rows.entries(slots, None if self.domain is None else self.domain.look_up_of).entries


class Matched(TwoSides):
    """The rows of an alias that are told alone, kept by a `Matching`."""

    def __init__(self, kept: Kept, support: Kept, at: Counted, shown: Sequence[Side], aliases: int) -> None:
        super().__init__(kept, support, at, shown)
        ((_, wanted),) = kept.tests[0]
        assert support.plan is not None
        self.matching = Matching(wanted, support.plan.shape == "self_not_equal")
        self._aliases = aliases
        told = self.matching.matched if wanted else self.matching.unmatched
        self.alone = [Alone(self.rows, self.own, self.domain, told)]

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        self.matching.load(version, *self.read(version, progress))

    def require(self, resolved: Mapping[str, Resolved]) -> None:
        self.matching.require(*self.rows_after(resolved))

    def apply(self, version: int, runs: Runs, sink: Sink | None) -> None:
        """Cost: O(log n) a changed row, and a row that flips."""
        changed = self.changed(runs, sink is not None)
        if changed is None:
            return
        offsets, moves = changed
        deltas = self.matching.apply(version, moves, None if sink is None else sink.limit)
        if sink is not None:
            at, rows = told_rows(sink, offsets, deltas)
            come = rows[0] >= 0
            alone = (np.where(come, rows[0], ~rows[0]),)
            sink.several(offsets[at], come, widened(alone, (self.rows.place,), self._aliases))
        self.release(moves, version)

    def reclaim(self, oldest_needed: int, pins: Numbers) -> bool:
        if self.matching.reclaim(oldest_needed, pins, FREED_AT_ONCE):
            return True
        return self.domain is not None and self.domain.reclaim(oldest_needed, pins)

    @property
    def update_steps(self) -> int:
        return self.matching.steps

    @property
    def flips(self) -> int:
        return self.matching.flips

    @property
    def entries(self) -> int:
        """But those of the lists."""
        return self.matching.tree.events

    @property
    def bytes(self) -> int:
        return self.matching.bytes + (self.domain.bytes if self.domain is not None else 0)

    @property
    def retired_bytes(self) -> int:
        return self.matching.retired_bytes

    def check(self) -> None:
        self.matching.check()
        rows, partners = self.now()
        unmatched = self.matching.unmatched
        alone = int(np.count_nonzero(unmatched.holds(unmatched.root, rows)))
        assert alone == unmatched.root.counts[0], "rows without a partner are kept that are not there"
        assert self.matching.tree.events == 2 * len(partners.slot) + len(rows.slot) - alone, "rows or partners are kept that are not there"
        if self.domain is not None:
            self.domain.check()


class Paired(TwoSides):
    """The rows of one alias or of both that are told alone, and the core, kept together by an `OuterTree`. It alone changes the core."""

    def __init__(self, kept: Sequence[Kept], support: Kept, at: Counted, shown: Sequence[Side], core: OverlapJoin) -> None:
        super().__init__(kept[0], support, at, shown, kept[1] if len(kept) > 1 else None, core.domain)
        self._core = core
        self.outer = OuterTree(core.tree, at.place, len(kept) > 1)
        self.alone = [Alone(self.rows, self.own, self.domain, self.outer.alone[at.place])]
        if self.partner_rows is not None:
            self.alone.append(Alone(self.partner_rows, self.partners, self.domain, self.outer.alone[1 - at.place]))

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        self.outer.load(version, *self.read(version, progress))
        self._core.root = self._core.tree.root

    def require(self, resolved: Mapping[str, Resolved]) -> None:
        ours = [one for relation in self.relations if (one := resolved.get(relation.name)) is not None]  # one of both sides is there twice
        changes = sum([one.inserts.num_rows + len(one.deletes) for one in ours])
        self.outer.require(changes, *self.rows_after(resolved))

    def apply(self, version: int, runs: Runs, sink: Sink | None) -> None:
        """Cost: O(log n) a changed row, O(1) a row of the core that it adds or removes, and O(log n) a row that flips."""
        changed = self.changed(runs, sink is not None)
        if changed is None:
            return
        offsets, moves = changed
        deltas = self.outer.apply(version, moves, None if sink is None else sink.limit)
        self._core.root = self._core.tree.root
        if sink is not None:
            at, (*rows, come) = told_rows(sink, offsets, deltas)
            sink.several(offsets[at], come > 0, tuple(rows))
        self.release(moves, version)

    def reclaim(self, oldest_needed: int, pins: Numbers) -> bool:
        return self._core.reclaim(oldest_needed, pins) or any(one.list.reclaim(oldest_needed, pins, FREED_AT_ONCE) for one in self.alone)

    @property
    def update_steps(self) -> int:
        return self.outer.steps

    @property
    def flips(self) -> int:
        return self.outer.flips

    @property
    def entries(self) -> int:
        """But those of the core and of the lists."""
        return 0

    @property
    def bytes(self) -> int:
        return self.outer.bytes

    @property
    def retired_bytes(self) -> int:
        return sum(one.list.retired_bytes for one in self.alone)

    def check(self) -> None:
        self.outer.check()
        both = self.now()
        able = sorted(int(np.count_nonzero(some.key != LONELY)) for some in both)
        assert able == sorted(self._core.tree.root.counts), "rows or partners are kept that are not there"
        for one, found in zip(self.alone, both, strict=False):
            held = one.list.holds(one.list.root, found)
            assert np.count_nonzero(held) == one.list.root.counts[0], "rows without a partner are kept that are not there"


class _Agreeing(SlotsCursor):
    """Of a reading of one alias's rows those that have these values in these columns (one row)."""

    def __init__(self, cursor: Any, side: Side, values: pa.RecordBatch) -> None:
        super().__init__(cursor)
        self._scan = Scan(side, 0, values)
        self._dropped = 0

    @property
    def dead_ends(self) -> int | None:
        return self._dropped

    def fill(self, limit: int) -> Combination:
        (slots,) = super().fill(limit)
        found = self._scan.agreeing(slots)
        self._dropped += len(slots) - len(found)
        return (found,)


class MatchJoin(Defaults):
    """See the module's head; what the methods do is said in `protocol`."""

    def __init__(self, outer: Outer, sides: Sequence[Side], aliases: int, make: Callable[[Kept, Sequence[Side]], Join]) -> None:
        """`sides`: of all that is read; the first `aliases` of them are those of the rows. `make`: the core."""
        relations = {side.relation.name: side.relation for side in sides}
        self._sides, self._aliases = list(sides[:aliases]), aliases
        self._core: Join | None = None
        self._reads: set[str] = set()
        for kept in outer.joins:
            if len(kept.places) == 2:
                own = [Side(kept.query, place, relations[name]) for place, (_, name) in enumerate(kept.query.aliases)]
                self._core, self._reads = make(kept, own), {side.relation.name for side in own}
        tested = [kept for kept in outer.joins if any(kept.tests)]
        ats = [self._place(outer, kept) for kept in tested]
        supports = [outer.joins[at.join] for at in ats]
        self._kept: Sequence[Matched | Paired]
        if isinstance(self._core, OverlapJoin) and self._core.shape.kind == "pair":
            self._kept, self._changes_core = [Paired(tested, supports[0], ats[0], sides, self._core)], False
        else:
            every = zip(tested, supports, ats, strict=True)
            self._kept, self._changes_core = [Matched(*one, sides, aliases) for one in every], True
        self._alone = [one for kept in self._kept for one in kept.alone]
        self._version = 0

    @staticmethod
    def _place(outer: Outer, kept: Kept) -> Counted:
        """Where the alias of these rows is in the join that counts their partners."""
        at = outer.counts[kept.tests[0][0][0]]
        if kept.query.aliases[0][0] != outer.joins[at.join].query.aliases[at.place][0]:  # of FULL JOIN the other side
            return at._replace(place=1 - at.place)
        return at

    @property
    def root(self) -> Root:
        core = None if self._core is None else self._core.root
        return Root(self._version, core, tuple(one.list.root for one in self._alone))

    @property
    def update_steps(self) -> int:
        return (0 if self._core is None else self._core.update_steps) + sum(one.update_steps for one in self._kept)

    @property
    def flips(self) -> int:
        """Rows that gained their first partner, or lost their last one, in all changes so far."""
        return sum(one.flips for one in self._kept)

    # --- writing

    @property
    def _changed(self) -> list[Join | Matched | Paired]:
        return [*([self._core] if self._core is not None and self._changes_core else []), *self._kept]

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        """Cost: O(n log n) of sorting."""
        self._version = version
        for done, one in enumerate(self._changed):
            one.build(version, lambda part, done=done: progress((done + part) / len(self._changed)))  # type: ignore[misc]

    def require(self, resolved: Mapping[str, Resolved]) -> None:
        for one in self._changed:
            one.require(resolved)

    def apply(self, version: int, runs: Runs, sink: Sink | None) -> None:
        self._version = version
        if self._core is not None and self._changes_core and not self._reads.isdisjoint(runs):
            self._core.apply(version, runs, sink)
        for one in self._kept:
            one.apply(version, runs, sink)

    def reclaim(self, oldest_needed: int, pins: Numbers) -> bool:
        return any(one.reclaim(oldest_needed, pins) for one in self._changed)

    # --- reading

    def _of_alone(self, one: Alone, cursor: Any, window: Bounds | None) -> Enumeration:
        """Rows of one alias as rows of the view; `cursor` heeds the window of the interval that joins it."""
        others: list[Looked] = []
        for span, bounds in (window or {}).items():
            if span.alias == self._sides[one.rows.place].alias and span != one.source.span:
                others.append((self._sides[one.rows.place], span, bounds))
        return Shown(cursor if isinstance(cursor, SlotsCursor) else SlotsCursor(cursor), (one.rows.place,), self._aliases, others)

    @staticmethod
    def _own(one: Alone, window: Bounds | None) -> tuple[int, int] | None:
        return (window or {}).get(one.source.span) if one.source.span is not None else None

    def _chained(self, core: Callable[[Join], Enumeration] | None, others: Sequence[Callable[[], Enumeration]]) -> Enumeration:
        begins = [partial(core, self._core)] if core is not None and self._core is not None else []
        return Chained([*begins, *others], self._aliases)

    def rows(self, root: Root, window: Bounds | None) -> Enumeration:
        def alone(one: Alone, at: ListRoot) -> Enumeration:
            return self._of_alone(one, one.list.rows(at, None, self._own(one, window)), window)

        others = [partial(alone, one, at) for one, at in zip(self._alone, root.alone, strict=True)]
        return self._chained(lambda core: core.rows(root.core, window), others)

    def _there(self, root: Root, place: int) -> list[tuple[Alone, ListRoot]]:
        return [(one, at) for one, at in zip(self._alone, root.alone, strict=True) if one.rows.place == place]

    def partners(self, root: Root, place: int, slots: Slots, window: Bounds | None) -> Enumeration:
        def alone(one: Alone, at: ListRoot) -> Enumeration:
            entries = one.entries(slots)
            own = self._own(one, window)
            if own is not None:
                entries = entries.take((entries.left <= own[1]) & (own[0] <= entries.right))
            held = entries.slot[one.list.holds(at, entries)]
            return self._of_alone(one, GivenCursor(held.reshape(1, -1)), window)

        others = [partial(alone, one, at) for one, at in self._there(root, place)]
        return self._chained(lambda core: core.partners(root.core, place, slots, window), others)

    def of_key(self, root: Root, place: int, key: pa.RecordBatch, window: Bounds | None) -> Enumeration:
        """By the structures, if they join by just these columns; else the alias's relation is looked through."""
        columns = {name for one in self._alone for name in one.source.columns}
        if columns != {*key.schema.names}:
            scan = Scan(self._sides[place], root.version, key)
            return Scanned(scan, lambda slots: self.partners(root, place, slots, window), self._aliases)

        def of_code(one: Alone, at: ListRoot) -> Enumeration:
            assert one.domain is not None
            code = int(one.domain.look_up(key.select(one.source.columns))[0])
            cursor = one.list.rows(at, code, self._own(one, window)) if code >= 0 else GivenCursor(_NO_ROWS)
            return self._of_alone(one, cursor, window)

        def lonely(one: Alone, at: ListRoot) -> Enumeration:
            cursor = one.list.rows(at, LONELY, self._own(one, window))
            return self._of_alone(one, _Agreeing(cursor, self._sides[place], key), window)

        there = self._there(root, place)
        others = [partial(begin, one, at) for one, at in there for begin in (of_code, lonely)]
        return self._chained(lambda core: core.of_key(root.core, place, key, window), others)

    def is_empty(self, root: Root) -> bool | None:
        if any(at.counts[0] for at in root.alone):
            return False
        return True if self._core is None else self._core.is_empty(root.core)

    def entries(self, root: Root) -> int:
        mine = sum(one.entries for one in self._kept) + sum(at.counts[0] for at in root.alone)
        return mine + (0 if self._core is None else self._core.entries(root.core))

    @property
    def bytes(self) -> int:
        mine = sum(one.bytes for one in self._kept)
        return mine + (0 if self._core is None else self._core.bytes)

    @property
    def retired_bytes(self) -> int:
        mine = sum(one.retired_bytes for one in self._kept)
        return mine + (0 if self._core is None else self._core.retired_bytes)

    def check(self) -> None:
        """Also that the lists have just the rows of the newest version that they should."""
        for one in self._kept:
            one.check()
        if self._core is not None:
            self._core.check()
