"""New structures for a view after a batch that truncates some of its relations: built beside the writer, put in place in the batch's turn.

A row of an inner join has a row of each relation. So a truncate deletes all rows of the view, and its structures are left with the rows of
the other relations, which exist beforehand. The same is true of EXISTS, of the left side of LEFT JOIN, of the latest rows, and the like.
With its right side, LEFT JOIN loses the rows that have one, and the left rows of these then stand alone. In other views (NOT EXISTS, gaps)
other rows take the places of the lost ones: the rows of the new structures are compared with those that the view has. UNION and EXCEPT look
up each row among those of their own trees that are left. Where many more rows are left than deleted, neither is done: the new structures
are loaded with all rows, and tell what they lose and gain when those of the truncated relations are deleted from them, beside the writer.

    in the writer's turn   hold the published version; record changes to the view's relations from then on
    beside the writer      load new structures with the rows of the other relations; list the rows that the view loses and gains, as far as
                           its feed may keep them
    rounds                 follow the changes since: in the structures those of the other relations, in the list those of all
    last round             complete the list, or follow what is left if it is much, while changes of the view's relations wait
    in the batch's turn    follow the rest; the listed rows are deleted and inserted, and the new structures replace the view's own

The list of an inner join follows changed rows; any other is read again, in the last round, if something has changed; that of deletes comes
in the last round only. Groups have no list: new ones take the rows of the new structures, if there are any, and follow their changes. They
share the codes of the view's own groups (`GroupsStage.take_beside`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import NamedTuple, cast

import numpy as np

from service.tables.backlog import Net, Recorder, pieces
from service.tables.changes import Run, Runs
from service.tables.resolution import NO_SLOTS, Indices, Resolved
from service.tables.sides import Side
from service.tables.store import NO_NUMBERS
from service.views.collecting import Changed, Retained, rows_left
from service.views.deltas import Combination, Delta, Sink, most_candidates
from service.views.joins.protocol import Enumeration
from service.views.joins.union_join import UnionJoin
from service.views.live_view import LiveView
from service.views.stages.groups import GroupsStage, Taken

log = logging.getLogger("livejoin.views")

_CHUNK = 1 << 16  # rows to read at once
_SOONER_BY_PARTNERS = ("bow_tie", "minesweeper")  # bow-tie: 7.7 s to list all of 2,000,000 rows, 0.6 s by the rows that are deleted
_MOST_LEFT = 8  # rows for each deleted one, of the other relations and of the view: to compare one takes a tenth of the time of a delete
_COMPARED = 1 << 20  # rows to compare at once
_MOST_BEHIND = 1 << 14  # changes that may be left to the turn, if writers are faster than all rounds


class Lost(NamedTuple):
    """The rows that a view loses with those of some relations. every: all of them. place: those with a row of the alias number `place`,
    whose other rows then stand alone. Neither: others take their places. is_inner: each lost row has a row of every alias, and comes and
    goes with these alone."""

    every: bool
    place: int | None
    is_inner: bool


def lost_without(view: LiveView, names: Collection[str]) -> Lost | None:
    """Return which rows the view loses if these relations lose theirs; None: it is not live."""
    query, plan = view.view.query, view.view.plan
    if view.state != "live":
        return None
    aliases, gone = {alias for alias, _ in query.aliases}, {alias for alias, name in query.whole.aliases if name in names}
    needed = set() if query.branches else aliases - query.optional
    for part in query.subqueries:
        if part.kind in ("exists", "coverage") and part.on in needed:
            needed |= {alias for alias, _ in part.own}
    if gone & needed or aliases <= gone:
        return Lost(True, None, not (query.subqueries or query.absent or query.latest or query.as_of or query.stretches or query.branches))
    if query.groups is None and plan.shape in ("match", "as_of") and gone and gone <= query.optional:
        (side,) = (side for side in view.sides if side.alias in gone)
        return Lost(False, side.place, plan.shape == "match" and gone == query.optional)
    return Lost(False, None, False)


class TooManyLeft(Exception):
    """To compare the rows that are left would take too long."""


class TooLate(Exception):
    """Rows have changed after the last round."""


def log_unprepared(view: LiveView, error: Exception) -> None:
    """Log that the view follows the batch in its own structures, and why. Too many rows are nothing unusual."""
    text = "the view %s could not be prepared for a truncate: its rows will be deleted one by one, and other changes wait meanwhile"
    if isinstance(error, TooManyLeft | TooLate):
        log.info(text + " (%s)", view.name, error)
    else:
        log.warning(text, view.name, exc_info=error)


class Emptied:
    """New structures for one view, in the end without rows of the relations `names`. One thread beside the writer calls `build` and
    `go_on`; everything else, including the constructor, is called in the writer's turn. OSError, MemoryError: there is no room."""

    def __init__(
        self, view: LiveView, names: Collection[str], lost: Lost, holding: Callable[[], AbstractContextManager[int]], may_compare: bool,
        recorder: Recorder,
    ) -> None:  # fmt: skip
        """`lost`: as `lost_without` finds it. may_compare: few rows of the view may be left; groups take any number."""
        self.view, self._names, self._lost, self._holding = view, frozenset(names), lost, holding
        self.backlog = recorder.open(view.relations.values())
        rows = {name: relation.table.rows for name, relation in view.relations.items()}
        deleted = sum(rows[name] for name in names)
        self._most_left = _MOST_LEFT * deleted
        may_compare = may_compare and sum(rows.values()) - deleted <= self._most_left
        # Whether deletes from the new structures tell what is lost and gained.
        self._by_deletes = self._most > 0 and not (lost.every or lost.place is not None or may_compare)
        self._join, self._hidden = view.without(() if self._by_deletes else self._names)
        self._former = view.core  # so that its memory is freed by the last owner of this object, not in the writer's turn
        self._held = self._before = ExitStack()
        self._rows: Combination | None = None  # those that the held version loses; None: more than the feed may keep
        self._new: Combination = (NO_SLOTS,) * view.width  # those that take their places, unless they are found by the lost ones
        self._is_stale = self._by_deletes  # whether the list is to be read, perhaps again
        self._taken: Taken | None = None
        self._report: Callable[[float], None]  # that of `build`
        self.hold()

    def hold(self) -> None:
        """Hold the newest version in place of the previous one."""
        self._before, self._held = self._held, ExitStack()  # until the changes since are followed
        self._version = self._held.enter_context(self._holding())
        self._join.hold(self._version)
        self._root = self.view.root

    def build(self, report: Callable[[float], None]) -> None:
        """Load the rows of the other relations, or all, and list the rows of the view unless deletes tell them. An exception from `report`
        ends it, and `go_on`. Raises TooManyLeft."""
        self._report = report
        self._join.build(self._version, report)
        self._hidden.now = False
        if self._by_deletes:
            return
        if self._most > 0:
            self._list()
        elif (groups := self.view.groups) is not None:
            self._taken = groups.nothing_taken()
            if self._keeping is not None:
                self._keeping.take_beside(self._taken, self._join, report)

    def go_on(self, is_last: bool) -> None:
        """Follow the changes up to the held version. Raises TooManyLeft."""
        self._follow(is_last)
        self._join.settle()
        while self._join.reclaim(self._version, NO_NUMBERS):
            self._report(1.0)

    def release(self) -> None:
        """Release the versions, and what the groups have taken."""
        if self._taken is not None and self.view.groups is not None:
            self.view.groups.drop(self._taken, self._version)
        self._taken = None
        self._before.close()
        self._held.close()

    def catch_up(self, version: int) -> bool:
        """Follow the remaining changes up to the newest version. Return whether this succeeded; if not, the view follows the batch in its
        own structures."""
        self._report = lambda _: None  # what has begun its turn is finished, though the service may be ending
        try:
            self._version, self._root = version, self.view.root
            self._join.hold(version)
            self._follow(True)
        except Exception as error:
            log_unprepared(self.view, error)
            return False
        return True

    @property
    def reads_lists(self) -> bool:
        """Whether the list does not follow changes: rows must be read again."""
        return self._most > 0 and (self._rows is None or not self._lost.is_inner)

    @property
    def must_read(self) -> bool:
        """Whether something may have changed since rows were last read."""
        return self.reads_lists and (self._is_stale or self.backlog.changes > 0)

    @property
    def needs_last_round(self) -> bool:
        """Whether changes of the view's relations must wait while this goes on: rows are to be read, or too much is left for the turn."""
        return self.must_read or self.backlog.changes > _MOST_BEHIND

    def require(self, resolved: Mapping[str, Resolved]) -> None:
        """As `LiveView.require`, for the batch."""
        left = {name: self._inserting(one) if name in self._names else one for name, one in resolved.items()}
        self._join.require(left)

    def put_in_place(self) -> None:
        self.view.replace(self._join)

    def apply(self, version: int, runs: Runs) -> Delta | None:
        """Follow the batch, once in place; return the delta if the view may be followed."""
        told = None if self._rows is None else (self._rows, self._rows_gained(self._rows))
        taken, self._taken = self._taken, None
        return self.view.apply_emptied(version, runs, self._names, told, taken)

    def _rows_gained(self, lost: Combination) -> Combination:
        """Return the rows that the view gains when it loses these, each once."""
        place = self._lost.place
        if place is None:
            return self._new
        there = np.zeros(self.view.sides[1 - place].relation.table.used + 1, np.bool_)  # in the turn, ten times as fast as np.unique
        there[lost[1 - place]] = True  # the last one, of slot -1: of FULL JOIN, lost rows that stood alone themselves
        left = np.flatnonzero(there[:-1]).astype(np.int32)
        alone = np.full(len(left), -1, np.int32)
        return (left, alone) if place else (alone, left)

    @staticmethod
    def _inserting(one: Resolved) -> Resolved:
        return replace(one, previous=np.full(one.inserts.num_rows, -1, np.int32), deletes=NO_SLOTS)

    def _follow(self, is_last: bool) -> None:
        """`is_last`: the list is read again if it must be. Raises TooLate and TooManyLeft."""
        nets = [net for net in self.backlog.take(self._version) if len(net.gone) or len(net.come)]
        if nets and self._by_deletes and not self._is_stale:
            raise TooLate("rows have changed since the others were deleted")
        for piece in pieces(net for net in nets if self._by_deletes or net.relation.name not in self._names):
            self._join.require(piece.resolved)
            if self._keeping is not None and self._taken is not None:
                self._keeping.follow_taken(self._taken, self._join, self._version, piece.runs, self._report)
            else:
                self._join.catch_up(self._version, piece.runs)
        self._before.close()
        gone = {net.relation.name: net.gone for net in nets if len(net.gone)}
        come = {net.relation.name: net.come for net in nets if len(net.come)}
        if self._most <= 0:
            return
        if self._rows is not None and self._lost.is_inner:
            if gone or come:
                self._keep([self._without(self._rows, gone), *self._coming(come)])
        elif self._rows is not None or gone:
            self._is_stale |= bool(gone or come)
        if self._is_stale and is_last:
            self._list()

    @property
    def _most(self) -> int:
        """Number of rows to list; -1: none, as the view may not be followed, or groups have their own rows."""
        retain = self.view.view.query.retain
        return -1 if retain is None or self.view.groups is not None else most_candidates(retain[0])

    @property
    def _keeping(self) -> GroupsStage | None:
        """Groups that take the rows of the new structures; these have none if all rows are lost."""
        return None if self._lost.every else self.view.groups

    def _keep(self, parts: list[Combination]) -> None:
        if sum(len(part[0]) for part in parts) <= self._most:
            self._rows = _together(parts)
        else:
            self._rows = None

    def _list(self) -> None:
        """List the rows of the version that are lost."""
        self._is_stale = False
        join, root, _ = self._root
        if self._by_deletes:
            self._delete()
        elif self._lost.every or self._lost.place is not None:
            self._keep(self._read(self._all_rows()))
        elif isinstance(join, UnionJoin):
            self._keep_both(self._read(join.lost_without(root, self._names)), self._read(join.gained_without(root, self._names)))
        else:
            self._compare()

    def _read(self, cursor: Enumeration) -> list[Combination]:
        """Read the lost rows of a cursor, as far as the feed may keep them."""
        parts, count = [(NO_SLOTS,) * self.view.width], 0
        while not cursor.done and count <= self._most:
            self._report(1.0)
            parts.append(self._those_lost(cursor.fill(_CHUNK)))
            count += len(parts[-1][0])
        return parts

    def _keep_both(self, lost: list[Combination], new: list[Combination]) -> None:
        self._keep(lost)
        if sum(len(part[0]) for part in new) > self._most:
            self._rows = None
        else:
            self._new = _together(new)

    def _delete(self) -> None:
        """Delete the rows of the relations from the new structures, and list what these lose and gain."""
        collector, gone = self.view.collector(), dict[str, Run]()
        for name in self._names:
            relation = self.view.relations[name]
            slots, _ = relation.table.scan(self._version, 0, relation.table.used + 1)
            for piece in pieces([Net(relation, slots, NO_SLOTS)]):
                self._report(1.0)
                self._join.require(piece.resolved)
                self._join.apply(self._version, piece.runs, cast(Sink, collector))
                gone.update(piece.runs)
        delta = self.view.netted(collector, self._version, gone)
        if delta is None:
            self._rows = self._new
        elif delta.versions:
            self._rows, self._new = delta.halves

    def _compare(self) -> None:
        """List the rows that only the view has, and those that only the new structures have."""
        join, root, _ = self._root
        before, after = self._all_of(join.rows(root, None)), self._all_of(self._join.rows(self._join.root, None))
        none = (NO_SLOTS,) * self.view.width
        lost = np.zeros(len(before[0]), np.bool_)  # these need not be compared
        for side in self.view.sides:
            if side.relation.name in self._names:
                lost |= before[side.place] >= 0
        parts: tuple[list[Combination], list[Combination]] = ([none, tuple(part[lost] for part in before)], [none])
        before = tuple(part[~lost] for part in before)
        count = -(-(len(before[0]) + len(after[0])) // _COMPARED)
        for number in range(count):
            self._report(1.0)
            old, new = (tuple(part[rows[0] % count == number] for part in rows) for rows in (before, after))
            for found, rows, some in zip(parts, (old, new), _different(old, new, self.view.sides), strict=True):
                found.append(tuple(part[some] for part in rows))
        self._keep_both(*parts)

    def _all_of(self, cursor: Enumeration) -> Combination:
        """Read all rows of a cursor, at most `_most_left`. Raises TooManyLeft."""
        large, small, count, read = [(NO_SLOTS,) * self.view.width], list[Combination](), 0, 0
        while not cursor.done:
            self._report(1.0)
            rows = cursor.fill(_CHUNK)
            small.append(rows)
            count, read = count + len(rows[0]), read + len(rows[0])
            if read > self._most_left:
                raise TooManyLeft(f"more than {self._most_left} rows are left")
            if count >= _CHUNK:  # to join thousands of small arrays, or to free them, holds the interpreter's lock
                large.append(_together(small))
                small, count = [], 0
        return _together(large + small)

    def _those_lost(self, rows: Combination) -> Combination:
        if self._lost.place is None:
            return rows
        lost = rows[self._lost.place] >= 0
        return tuple(part[lost] for part in rows)

    def _all_rows(self) -> Enumeration:
        join, root, _ = self._root
        if self.view.view.plan.shape not in _SOONER_BY_PARTNERS and (self._lost.place is None or not self._lost.is_inner):
            return join.rows(root, None)
        side = next(side for side in self.view.sides if side.relation.name in self._names)
        return join.partners(root, side.place, np.concatenate(side.rows_of(self._version)), None)

    def _without(self, rows: Combination, gone: Mapping[str, np.ndarray]) -> Combination:
        """Drop the rows with a deleted part."""
        for side in self.view.sides:
            slots = gone.get(side.relation.name)
            if slots is not None:
                stays = ~np.isin(rows[side.place], slots)
                rows = rows if stays.all() else tuple(part[stays] for part in rows)
        return rows

    def _coming(self, come: Mapping[str, np.ndarray]) -> list[Combination]:
        """Return the rows with an inserted part."""
        parts: list[Combination] = []
        count, sides = 0, [side for side in self.view.sides if side.relation.name in come]
        for number, side in enumerate(sides):
            cursor = self._root.join.partners(self._root.root, side.place, come[side.relation.name], None)
            while not cursor.done and count <= self._most:
                rows = self._those_lost(cursor.fill(_CHUNK))
                for other in sides[:number]:  # listed in the turn of that side
                    new = ~np.isin(rows[other.place], come[other.relation.name])
                    rows = tuple(part[new] for part in rows)
                parts.append(rows)
                count += len(rows[0])
        return parts


def _together(parts: Sequence[Combination]) -> Combination:
    return tuple(map(np.concatenate, zip(*parts, strict=True)))


def _different(before: Combination, after: Combination, sides: Sequence[Side]) -> tuple[Indices, Indices]:
    """Return the numbers of the rows that only the first ones have, and those that only the others have. Cost: O(1) a row."""
    lost, n = len(before[0]), len(before[0]) + len(after[0])
    both = _together((before, after))
    goes, comes = rows_left(Changed(np.zeros(n, np.int64), np.arange(n) >= lost, both), Retained(sides, {}, None, n))
    return goes, comes - lost
