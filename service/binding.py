"""In which order the aliases of a join are bound, and by which indexes: what `indexed_join` goes by.

From each alias there is an order that begins with it: a changed row is bound first, and the rest is looked up. The next alias is the one
with the best index on what is bound already: equalities that cover its key, then any equality, then an overlap or a distance, then a ray;
all further conditions between it and what is bound are checked row by row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from service.meets import Relations, meets_of, residual_of
from service.terms import ColumnRef, Comparison, Meet, Query, Span


class Index(NamedTuple):
    """Rows of alias number `place` by the values of some columns, and by a span (None: all of one key alike)."""

    place: int
    columns: tuple[str, ...]
    span: Span | None


class Step(NamedTuple):
    """Binds one more alias: number of the index, the bound alias and column that gives each key column's value, whose span is looked up."""

    number: int
    keys: tuple[tuple[int, str], ...]
    probe: tuple[int, Span] | None
    meets: tuple[tuple[int, Span, Span], ...]  # to be checked: a bound alias, its span, the new one's
    residual: tuple[Comparison, ...]  # to be checked


@dataclass(frozen=True)
class Binding:
    """`orders[p]` begins with alias number p; `steps[p]` binds the others. The whole view is read in orders[first]."""

    indexes: tuple[Index, ...]
    orders: tuple[tuple[int, ...], ...]
    steps: tuple[tuple[Step, ...], ...]
    first: int


def bind(query: Query, relations: Relations) -> Binding:
    """Orders and indexes for a query whose aliases hang together, by conditions or products. O(aliases³)."""
    binder = _Binder(query, relations)
    found = [binder.order(place) for place in range(len(query.aliases))]
    quality = [worth for _, _, worth in found]
    return Binding(
        tuple(binder.indexes), tuple(order for order, _, _ in found), tuple(steps for _, steps, _ in found),
        quality.index(max(quality)),
    )  # fmt: skip


def equal_classes(query: Query) -> list[list[ColumnRef]]:
    """The columns that all have one value in a row, in classes of two and more, each in the order of the aliases."""
    classes: list[set[ColumnRef]] = []
    for pair in query.equal:
        touched = [one for one in classes if not one.isdisjoint(pair)]
        classes = [one for one in classes if one not in touched] + [set(pair).union(*touched)]
    places = {alias: place for place, (alias, _) in enumerate(query.aliases)}
    return sorted(sorted(one, key=lambda ref: (places[ref.alias], ref.column)) for one in classes)


class _Binder:
    def __init__(self, query: Query, relations: Relations) -> None:
        self.indexes: list[Index] = []
        self._aliases = [alias for alias, _ in query.aliases]
        self._keys = [set(relations[name].key) for _, name in query.aliases]
        self._classes = equal_classes(query)
        self._meets = meets_of(query, relations)
        self._residual = residual_of(query, relations)
        # Two columns of one alias that have to be equal: a key tells it of one of them only.
        twice = [one for one in self._classes if len({ref.alias for ref in one}) < len(one)]
        self._doubtful = [Comparison(x, "=", y) for x, y in query.equal if any(x in one for one in twice)]
        self._place = {alias: place for place, alias in enumerate(self._aliases)}

    def order(self, start: int) -> tuple[tuple[int, ...], tuple[Step, ...], list[int]]:
        """The order from one alias on, its steps, and how good each step's index is."""
        bound, steps, quality = [start], [], []
        while len(bound) < len(self._aliases):
            left = [place for place in range(len(self._aliases)) if place not in bound]
            worth = {place: self._worth(place, bound) for place in left}
            best = max(left, key=lambda place: (worth[place], -place))
            steps.append(self._step(best, bound))
            quality.append(worth[best])
            bound.append(best)
        return tuple(bound), tuple(steps), quality

    def _worth(self, place: int, bound: list[int]) -> int:
        columns = {column for column, _ in self._key(place, bound)}
        meets = self._meeting(place, bound)
        if columns and self._keys[place] <= columns:
            return 4
        if columns:
            return 3
        if meets:
            return 1 + _is_bounded(meets[0])
        return 0

    def _key(self, place: int, bound: list[int]) -> list[tuple[str, tuple[int, str]]]:
        """This alias's columns whose values are known, and where from."""
        found = []
        for one in self._classes:
            known = [(self._place[ref.alias], ref.column) for ref in one if self._place[ref.alias] in bound]
            if known:
                found += [(ref.column, known[0]) for ref in one if ref.alias == self._aliases[place]]
        return sorted(found)

    def _meeting(self, place: int, bound: list[int]) -> list[Meet]:
        """The conditions of intervals with what is bound, the most selective kind first."""
        alias, others = self._aliases[place], {self._aliases[other] for other in bound}
        found = [meet for meet in self._meets if alias in (ends := {meet.left.alias, meet.right.alias}) and ends & others]
        return sorted(found, key=_is_bounded, reverse=True)

    def _step(self, place: int, bound: list[int]) -> Step:
        alias = self._aliases[place]
        keys, meets = self._key(place, bound), self._meeting(place, bound)
        sides = [(meet.left, meet.right) if meet.right.alias == alias else (meet.right, meet.left) for meet in meets]
        probe = (self._place[sides[0][0].alias], sides[0][0]) if sides else None
        index = self._number(Index(place, tuple(column for column, _ in keys), sides[0][1] if sides else None))
        names = {self._aliases[other] for other in bound}
        conditions = [*self._residual, *self._doubtful]
        residual = tuple(one for one in conditions if alias in (ends := {one.left.alias, one.right.alias}) and ends <= {alias, *names})
        checked = tuple((self._place[theirs.alias], theirs, mine) for theirs, mine in sides[1:])
        return Step(index, tuple(source for _, source in keys), probe, checked, residual)

    def _number(self, index: Index) -> int:
        if index not in self.indexes:
            self.indexes.append(index)
        return self.indexes.index(index)


def _is_bounded(meet: Meet) -> bool:
    """Whether both sides are bounded intervals, and no rays."""
    return all(span.start is not None and span.end is not None for span in (meet.left, meet.right))
