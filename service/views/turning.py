"""Rows that a changed row turns: it gives them their first partner or removes their last one, replaces the row in force at them, or is
counted in them as groups. The view's rows for these are deleted and inserted although they have not changed themselves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from service.planning.plans.outer import parts_of
from service.planning.plans.plan import Plan
from service.query.model import ColumnRef, Query
from service.tables.changes import Run, parted
from service.tables.relations import Relation
from service.tables.resolution import NO_SLOTS, Slots
from service.tables.sides import Side, deciding
from service.views.collecting import Collector
from service.views.joins.protocol import Enumeration

Partners = Callable[[Side, Slots], Enumeration]
"""The rows of a version in which rows of an alias, at these slots, take part."""

FEW = 100  # rows that may be turned while a request waits: some microseconds each
_PIECE = 1 << 16  # rows of the view to read at once


class Turning:
    """How many rows a changed row may turn."""

    def __init__(self, query: Query, plan: Plan, relations: Mapping[str, Relation]) -> None:
        self._by_alias = dict(query.whole.aliases)
        self._relations = relations
        self._unbounded: set[str] = set()
        self._turned: dict[str, list[str]] = {}  # by relation, those whose rows its own turn
        self._turning: set[str] = set()  # relations whose rows turn others, even if only one
        if query.latest is not None or (query.as_of is not None and not reads_turns(query)):
            self._turning.update(self._by_alias.values())
        if plan.shape == "as_of" and query.as_of is not None:
            if not reads_turns(query):
                self._add(query.as_of.of.alias, query.as_of.point.alias, query.equal)
        elif plan.shape == "visits":
            self._add(plan.order[1], plan.order[0], query.equal)
        elif plan.shape == "match":
            parts = parts_of(query)
            assert not isinstance(parts, str)
            for part in parts:
                ((own, _),) = part.own
                self._add(own, part.on, part.join.equal)
                if part.kind == "full":
                    self._add(part.on, own, part.join.equal)
        elif plan.outer is not None:  # partners are visited in any case
            self._unbounded.update(self._by_alias.values())

    def _add(self, by: str, turned: str, equal: tuple[tuple[ColumnRef, ...], ...]) -> None:
        """Note that rows of one alias turn those of another: at most one of them if its whole key is joined."""
        self._turning.add(self._by_alias[by])
        relation = self._relations[self._by_alias[turned]]
        joined = {ref.column for pair in equal for ref in pair if ref.alias == turned}
        if not joined.issuperset(relation.key):
            self._turned.setdefault(self._by_alias[by], []).append(relation.name)

    def turns(self, relation: str) -> bool:
        """Whether a change of this relation may delete and insert rows of the view that cannot be found from the changed row, before and
        after (`read_turns` finds those of some as-of joins). O(1)."""
        return relation in self._unbounded or relation in self._turning

    def most(self, relation: str) -> float:
        """How many rows a changed row of this relation may turn at most, over all its aliases. O(1)."""
        if relation in self._unbounded:
            return math.inf
        turned = self._turned.get(relation)
        return 0 if turned is None else sum([self._relations[name].table.rows for name in turned])


def reads_turns(query: Query) -> bool:
    """Whether the rows that a changed row turns are found by reading (`read_turns`): an as-of join has intervals of all rows that are
    searched."""
    as_of = query.as_of
    if as_of is None or query.groups is not None:
        return False
    return all(one.alias != as_of.of.alias or one in deciding(query, one.alias) for one in query.filters)


def read_turns(query: Query, sides: Sequence[Side], name: str, run: Run, versions: tuple[Partners, Partners], tell: Collector) -> None:
    """Report what one changed row of the relation `name` changes in an as-of join, by the versions before and after: the rows of the view
    for the row itself, and for each row at which it was or is in force."""
    assert query.as_of is not None
    (point,) = (side for side in sides if side.alias == query.as_of.point.alias)
    (other,) = (side for side in sides if side.alias == query.as_of.of.alias)
    gone, come, _ = parted(point if point.relation.name == name else other, run, True)
    own, found = (gone.old, come.new), [NO_SLOTS]
    if other.relation.name == name:
        for partners, slots in zip(versions, own, strict=True):
            cursor = partners(other, slots)
            while not cursor.done:
                found.append(cursor.fill(_PIECE)[point.place])
                if sum(map(len, found)) > 2 * tell.limit:
                    tell.exceeded(0)
                    return
    points = np.unique(np.concatenate(found))
    if point.relation.name == name:
        points = np.setdiff1d(points, np.concatenate(own), assume_unique=True)
    else:
        own = NO_SLOTS, NO_SLOTS
    for inserted, partners, slots in zip((False, True), versions, own, strict=True):
        cursor = partners(point, np.concatenate((points, slots)))
        while not cursor.done and tell(0, inserted, cursor.fill(_PIECE)):
            pass
