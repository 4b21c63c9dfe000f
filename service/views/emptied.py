"""New structures for a view after a batch that truncates some of its relations: built beside the writer, put in place in the batch's turn.

A row of an inner join has a row of each relation. So a truncate deletes all rows of the view, and its structures are left with the rows of
the other relations, which exist beforehand. The same is true of EXISTS, of the left side of LEFT JOIN, of the latest rows, and the like.
With its right side, LEFT JOIN loses the rows that have one, and the left rows of these then stand alone.

    in the writer's turn   hold the published version; record changes to the view's relations from then on
    beside the writer      load new structures with the rows of the other relations; list the rows that the view loses, as far as its feed
                           may keep them
    rounds                 follow the changes since: in the structures those of the other relations, in the list those of all
    in the batch's turn    follow the rest; the listed rows are deleted, and the new structures replace the view's own

The list of an inner join follows changed rows; any other is read again if something has changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from service.tables.backlog import Backlog, pieces
from service.tables.changes import Runs
from service.tables.resolution import NO_SLOTS, Resolved
from service.views.deltas import Combination, Delta, most_candidates
from service.views.joins.protocol import Enumeration
from service.views.live_view import LiveView

log = logging.getLogger("livejoin.views")

IN_VAIN = "the view %s could not be prepared for a truncate: its rows will be deleted one by one, and other changes wait meanwhile"
_CHUNK = 1 << 16  # rows to read at once
_SOONER_BY_PARTNERS = ("bow_tie", "minesweeper")  # bow-tie: 7.7 s to list all of 2,000,000 rows, 0.6 s by the rows that are deleted
_NO_PINS = np.empty(0, np.int64)  # nobody reads structures before they are in place


class Lost(NamedTuple):
    """The rows that a view loses with those of some relations: all, or those with a row of the alias number `place`, whose other rows then
    stand alone. is_inner: each of them has a row of every alias, and comes and goes with these alone."""

    place: int | None
    is_inner: bool


def lost_without(view: LiveView, names: Collection[str]) -> Lost | None:
    """Return which rows the view loses if these relations lose theirs; None: other rows would take their places, or the view is not an
    inner join's, or groups' that keep only a join."""
    query, plan = view.view.query, view.view.plan
    if view.state != "live" or not view.is_of_a_join or query.branches or (plan.core or plan).shape == "union":
        return None
    aliases, gone = {alias for alias, _ in query.aliases}, {alias for alias, name in query.whole.aliases if name in names}
    needed = aliases - query.optional
    for part in query.parts:
        if part.kind in ("exists", "coverage") and part.on in needed:
            needed |= {alias for alias, _ in part.own}
    if gone & needed or aliases <= gone:
        return Lost(None, not (query.parts or query.absent or query.latest or query.as_of or query.stretches))
    if query.groups is None and plan.shape in ("match", "as_of") and gone == query.optional:
        (side,) = (side for side in view.sides if side.alias in gone)
        return Lost(side.place, plan.shape == "match")
    return None


class Emptied:
    """New structures for one view, without rows of the relations `names`. One thread beside the writer calls `build` and `go_on`;
    everything else, including the constructor, is called in the writer's turn. OSError, MemoryError: there is no room."""

    def __init__(self, view: LiveView, names: Collection[str], holding: Callable[[], AbstractContextManager[int]]) -> None:
        self.view, self._names, self._holding = view, frozenset(names), holding
        self.backlog = Backlog(view.relations.values())
        self._join, self._hidden = view.without(self._names)
        lost = lost_without(view, self._names)
        assert lost is not None, "other rows take the places of those that are lost"
        self._lost = lost
        self._former = view.core  # so that its memory is freed by the last owner of this object, not in the writer's turn
        self._held = self._before = ExitStack()
        self._rows: Combination | None = None  # of the held version; None: more than the feed may keep
        self.hold()

    def hold(self) -> None:
        """Hold the newest version in place of the previous one."""
        self._before, self._held = self._held, ExitStack()  # until the changes since are followed
        self._version = self._held.enter_context(self._holding())
        self._join.hold(self._version)
        self._root = self.view.root

    def build(self, report: Callable[[float], None]) -> None:
        """Load the rows of the other relations, and list the rows of the view. An exception from `report` ends it."""
        self._join.build(self._version, report)
        self._hidden.now = False
        if self._most > 0:
            self._list()

    def go_on(self) -> None:
        """Follow the changes up to the held version."""
        self._follow()
        self._join.settle()
        while self._join.reclaim(self._version, _NO_PINS):
            pass

    def let_go(self) -> None:
        """Release the versions."""
        self._before.close()
        self._held.close()

    def catch_up(self, version: int) -> bool:
        """Follow the remaining changes up to the newest version. Return whether this succeeded; if not, the view follows the batch in its
        own structures."""
        try:
            self._version, self._root = version, self.view.root
            self._join.hold(version)
            self._follow()
        except Exception:
            log.warning(IN_VAIN, self.view.name, exc_info=True)
            return False
        return True

    @property
    def would_list_again(self) -> bool:
        """Whether its list must be read again, as something has changed."""
        return self._rows is not None and not self._lost.is_inner and self.backlog.changes > 0

    def require(self, resolved: Mapping[str, Resolved]) -> None:
        """As `LiveView.require`, for the batch."""
        left = {name: self._inserting(one) if name in self._names else one for name, one in resolved.items()}
        self._join.require(left)

    def put_in_place(self) -> None:
        self.view.replace(self._join)

    def apply(self, version: int, runs: Runs) -> Delta | None:
        """Follow the batch, once in place; return the delta if the view may be followed."""
        told = None if self._rows is None else (self._rows, self._left_alone(self._rows))
        return self.view.apply_emptied(version, runs, self._names, told)

    def _left_alone(self, rows: Combination) -> Combination:
        """Return the rows that stand alone once these are lost, each once."""
        place = self._lost.place
        if place is None:
            return tuple(part[:0] for part in rows)
        there = np.zeros(self.view.sides[1 - place].relation.table.used, np.bool_)  # in the turn, ten times as fast as np.unique
        there[rows[1 - place]] = True
        left = np.flatnonzero(there).astype(np.int32)
        alone = np.full(len(left), -1, np.int32)
        return (left, alone) if place else (alone, left)

    @staticmethod
    def _inserting(one: Resolved) -> Resolved:
        return replace(one, previous=np.full(one.inserts.num_rows, -1, np.int32), deletes=NO_SLOTS)

    def _follow(self) -> None:
        nets = self.backlog.take(self._version)
        for piece in pieces(net for net in nets if net.relation.name not in self._names):
            self._join.require(piece.resolved)
            self._join.apply(self._version, piece.runs, None)
        self._before.close()
        gone = {net.relation.name: net.gone for net in nets if len(net.gone)}
        come = {net.relation.name: net.come for net in nets if len(net.come)}
        if self._most <= 0 or not (gone or come):
            return
        if self._rows is not None and self._lost.is_inner:
            self._keep([self._without(self._rows, gone), *self._coming(come)])
        elif self._rows is not None or gone:
            self._list()

    @property
    def _most(self) -> int:
        """Number of rows to list; -1: none, as the view may not be followed, or groups have their own rows."""
        retain = self.view.view.query.retain
        return -1 if retain is None or self.view.owns_rows else most_candidates(retain[0])

    def _keep(self, parts: list[Combination]) -> None:
        if sum(len(part[0]) for part in parts) <= self._most:
            self._rows = tuple(map(np.concatenate, zip(*parts, strict=True)))
        else:
            self._rows = None

    def _list(self) -> None:
        """List the rows of the version that are lost."""
        cursor, parts, count = self._all_rows(), [(NO_SLOTS,) * self.view.width], 0
        while not cursor.done and count <= self._most:
            parts.append(self._those_lost(cursor.fill(_CHUNK)))
            count += len(parts[-1][0])
        self._keep(parts)

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
