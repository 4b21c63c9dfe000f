"""The order in which the aliases of a join are bound, and the indexes used: the input of `indexed_join`.

For each alias there is an order that begins with it: a changed row is bound first, and the rest is looked up; all conditions between an
alias and the bound ones that its index does not cover are checked row by row.

With counts, the order is the one with the fewest bound and visited rows, assuming that conditions are independent. Without (if a relation
is still empty) the next alias is the one with the best index on the bound columns: equalities that cover its key, then any equality, then
an overlap or a distance, then a ray. Source: dynamic programming over sets of relations, Selinger and others, Access Path Selection in a
Relational Database Management System.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import NamedTuple, Protocol

from service.planning.classes import joined
from service.planning.meets import Relations, meets_of, residual_of
from service.query.model import ColumnRef, Comparison, Meet, Query, Span


class Index(NamedTuple):
    """Rows of alias number `place` by the values of some columns, and by a span (None: all rows of a key are equivalent)."""

    place: int
    columns: tuple[str, ...]
    span: Span | None


class Step(NamedTuple):
    """Binds one more alias: the number of the index, the bound alias and column that provide each key column's value, and the bound alias
    whose span is looked up."""

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


class Counts(Protocol):
    """Statistics of the rows."""

    def rows(self, place: int) -> float:
        """Rows of the alias that satisfy its filters."""
        ...

    def of_key(self, place: int, columns: tuple[str, ...]) -> float:
        """The number of these rows that share one value of these columns."""
        ...

    def share(self, meet: Meet) -> float:
        """The part of all pairs of rows of its aliases that meet."""
        ...


def bind(query: Query, relations: Relations, counts: Counts | None) -> Binding:
    """Orders and indexes for a query that is connected by conditions or products. O(aliases³), by counts O(aliases² 2^aliases)."""
    binder = _Binder(query, relations, counts)
    places = range(len(query.aliases))
    if counts is not None:
        costs, orders = zip(*(binder.cheapest(place, counts) for place in places), strict=True)
        whole = [counts.rows(place) * (1 + cost) for place, cost in zip(places, costs, strict=True)]
        first = whole.index(min(whole))
    else:
        orders, quality = zip(*(binder.order(place) for place in places), strict=True)
        first = quality.index(max(quality))
    steps = tuple(binder.steps(order) for order in orders)
    return Binding(tuple(binder.indexes), tuple(orders), steps, first)


def equal_classes(query: Query) -> list[list[ColumnRef]]:
    """The classes of two or more columns that are equal in every row, each in the order of the aliases."""
    places = {alias: place for place, (alias, _) in enumerate(query.aliases)}
    return sorted(sorted(one, key=lambda ref: (places[ref.alias], ref.column)) for one in joined(query.equal))


class _Binder:
    def __init__(self, query: Query, relations: Relations, counts: Counts | None) -> None:
        self._counts = counts
        self._candidates: dict[tuple[int, int], tuple[float, float]] = {}
        self.indexes: list[Index] = []
        self._aliases = [alias for alias, _ in query.aliases]
        self._keys = [set(relations[name].key) for _, name in query.aliases]
        self._classes = equal_classes(query)
        self._meets = meets_of(query, relations)
        self._residual = residual_of(query, relations)
        # Two columns of one alias that must be equal: a key checks only one of them.
        twice = [one for one in self._classes if len({ref.alias for ref in one}) < len(one)]
        self._doubtful = [Comparison(x, "=", y) for x, y in query.equal if any(x in one for one in twice)]
        self._place = {alias: place for place, alias in enumerate(self._aliases)}

    def order(self, start: int) -> tuple[tuple[int, ...], list[int]]:
        """The order starting with one alias, by rules, and the quality of each step's index."""
        bound, quality = [start], []
        while len(bound) < len(self._aliases):
            left = [place for place in range(len(self._aliases)) if place not in bound]
            worth = {place: self._worth(place, bound) for place in left}
            best = max(left, key=lambda place: (worth[place], -place))
            quality.append(worth[best])
            bound.append(best)
        return tuple(bound), quality

    def cheapest(self, start: int, counts: Counts) -> tuple[float, tuple[int, ...]]:
        """The order starting with one row of an alias, by counts, and its number of look-ups and candidates.

        For each set of bound aliases, the cheapest order is kept with its number of rows; of equally cheap ones the first by number.
        """
        best: dict[int, tuple[float, float, tuple[int, ...]]] = {1 << start: (0.0, 1.0, (start,))}
        for _ in range(len(self._aliases) - 1):
            longer: dict[int, tuple[float, float, tuple[int, ...]]] = {}
            for bound, (cost, rows, order) in best.items():
                for place in range(len(self._aliases)):
                    if bound >> place & 1:
                        continue
                    candidates, kept = self._found(place, bound, counts)
                    one = (cost + rows * (1 + candidates), rows * candidates * kept, (*order, place))
                    longer[bound | 1 << place] = min(one, longer.get(bound | 1 << place, one))
            best = longer
        ((cost, _, order),) = best.values()
        return cost, order

    def _found(self, place: int, bound: int, counts: Counts) -> tuple[float, float]:
        """Candidates that the index finds for one binding of these aliases (a bit each), and the part of them that passes the checks."""
        if (place, bound) not in self._candidates:
            others = [other for other in range(len(self._aliases)) if bound >> other & 1]
            columns = tuple(column for column, _ in self._key(place, others))
            candidates = counts.of_key(place, columns) if columns else counts.rows(place)
            if columns and self._keys[place] <= set(columns):
                candidates = min(1.0, candidates)
            shares = [counts.share(meet) for meet in self._meeting(place, others)]
            self._candidates[place, bound] = candidates * prod(shares[:1]), prod(shares[1:])
        return self._candidates[place, bound]

    def steps(self, order: tuple[int, ...]) -> tuple[Step, ...]:
        return tuple(self._step(place, list(order[:at])) for at, place in enumerate(order) if at)

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
        """The columns of this alias whose values are known, and their sources."""
        found = []
        for one in self._classes:
            known = [(self._place[ref.alias], ref.column) for ref in one if self._place[ref.alias] in bound]
            if known:
                found += [(ref.column, known[0]) for ref in one if ref.alias == self._aliases[place]]
        return sorted(found)

    def _meeting(self, place: int, bound: list[int]) -> list[Meet]:
        """The interval conditions with bound aliases, the most selective first: by counts, otherwise by kind."""
        alias, others = self._aliases[place], {self._aliases[other] for other in bound}
        found = [meet for meet in self._meets if alias in (ends := {meet.left.alias, meet.right.alias}) and ends & others]
        if self._counts is not None:
            return sorted(found, key=self._counts.share)
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
    """Whether both sides are bounded intervals, not rays."""
    return all(span.start is not None and span.end is not None for span in (meet.left, meet.right))
