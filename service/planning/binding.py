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
from service.query.conditions import ColumnRef
from service.query.model import Comparison, Meet, Query, Residual, Span


class Index(NamedTuple):
    """Rows of alias `position` by the values of some columns, and by a span (None: all rows of a key are equivalent)."""

    position: int
    columns: tuple[str, ...]
    span: Span | None


class Step(NamedTuple):
    """Binds one more alias: where its index is, the bound alias and column that provide each key column's value, and the bound alias
    whose span is looked up."""

    at: int
    keys: tuple[tuple[int, str], ...]
    probe: tuple[int, Span] | None
    meets: tuple[tuple[int, Span, Span], ...]  # to be checked: a bound alias, its span, the new one's
    residual: tuple[Residual, ...]  # to be checked


@dataclass(frozen=True)
class Binding:
    """`orders[p]` begins with alias p; `steps[p]` binds the others. The whole view is read in orders[first]."""

    indexes: tuple[Index, ...]
    orders: tuple[tuple[int, ...], ...]
    steps: tuple[tuple[Step, ...], ...]
    first: int


class Counts(Protocol):
    """Statistics of the rows."""

    def rows(self, position: int) -> float:
        """Rows of the alias that satisfy its filters."""
        ...

    def of_key(self, position: int, columns: tuple[str, ...]) -> float:
        """The number of these rows that share one value of these columns."""
        ...

    def share(self, meet: Meet) -> float:
        """The part of all pairs of rows of its aliases that meet."""
        ...


def bind(query: Query, relations: Relations, counts: Counts | None) -> Binding:
    """Orders and indexes for a query that is connected by conditions or products. O(aliases³), by counts O(aliases² 2^aliases)."""
    binder = _Binder(query, relations, counts)
    positions = range(len(query.aliases))
    if counts is not None:
        costs, orders = zip(*(binder.cheapest(position, counts) for position in positions), strict=True)
        whole = [counts.rows(position) * (1 + cost) for position, cost in zip(positions, costs, strict=True)]
        first = whole.index(min(whole))
    else:
        orders, quality = zip(*(binder.order(position) for position in positions), strict=True)
        first = quality.index(max(quality))
    steps = tuple(binder.steps(order) for order in orders)
    return Binding(tuple(binder.indexes), tuple(orders), steps, first)


def equal_classes(query: Query) -> list[list[ColumnRef]]:
    """The classes of two or more columns that are equal in every row, each in the order of the aliases."""
    positions = {alias: position for position, (alias, _) in enumerate(query.aliases)}
    return sorted(sorted(one, key=lambda ref: (positions[ref.alias], ref.column)) for one in joined(query.equal))


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
        self._position = {alias: position for position, alias in enumerate(self._aliases)}

    def order(self, start: int) -> tuple[tuple[int, ...], list[int]]:
        """The order starting with one alias, by rules, and the quality of each step's index."""
        bound, quality = [start], []
        while len(bound) < len(self._aliases):
            left = [position for position in range(len(self._aliases)) if position not in bound]
            worth = {position: self._worth(position, bound) for position in left}
            best = max(left, key=lambda position: (worth[position], -position))
            quality.append(worth[best])
            bound.append(best)
        return tuple(bound), quality

    def cheapest(self, start: int, counts: Counts) -> tuple[float, tuple[int, ...]]:
        """The order starting with one row of an alias, by counts, and its number of look-ups and candidates.

        For each set of bound aliases, the cheapest order is kept with its number of rows; of equally cheap ones the first by position.
        """
        best: dict[int, tuple[float, float, tuple[int, ...]]] = {1 << start: (0.0, 1.0, (start,))}
        for _ in range(len(self._aliases) - 1):
            longer: dict[int, tuple[float, float, tuple[int, ...]]] = {}
            for bound, (cost, rows, order) in best.items():
                for position in range(len(self._aliases)):
                    if bound >> position & 1:
                        continue
                    candidates, kept = self._found(position, bound, counts)
                    one = (cost + rows * (1 + candidates), rows * candidates * kept, (*order, position))
                    longer[bound | 1 << position] = min(one, longer.get(bound | 1 << position, one))
            best = longer
        ((cost, _, order),) = best.values()
        return cost, order

    def _found(self, position: int, bound: int, counts: Counts) -> tuple[float, float]:
        """Candidates that the index finds for one binding of these aliases (a bit each), and the part of them that passes the checks."""
        if (position, bound) not in self._candidates:
            others = [other for other in range(len(self._aliases)) if bound >> other & 1]
            columns = tuple(column for column, _ in self._key(position, others))
            candidates = counts.of_key(position, columns) if columns else counts.rows(position)
            if columns and self._keys[position] <= set(columns):
                candidates = min(1.0, candidates)
            shares = [counts.share(meet) for meet in self._meeting(position, others)]
            self._candidates[position, bound] = candidates * prod(shares[:1]), prod(shares[1:])
        return self._candidates[position, bound]

    def steps(self, order: tuple[int, ...]) -> tuple[Step, ...]:
        return tuple(self._step(position, list(order[:at])) for at, position in enumerate(order) if at)

    def _worth(self, position: int, bound: list[int]) -> int:
        columns = {column for column, _ in self._key(position, bound)}
        meets = self._meeting(position, bound)
        if columns and self._keys[position] <= columns:
            return 4
        if columns:
            return 3
        if meets:
            return 1 + _is_bounded(meets[0])
        return 0

    def _key(self, position: int, bound: list[int]) -> list[tuple[str, tuple[int, str]]]:
        """The columns of this alias whose values are known, and their sources."""
        found = []
        for one in self._classes:
            known = [(self._position[ref.alias], ref.column) for ref in one if self._position[ref.alias] in bound]
            if known:
                found += [(ref.column, known[0]) for ref in one if ref.alias == self._aliases[position]]
        return sorted(found)

    def _meeting(self, position: int, bound: list[int]) -> list[Meet]:
        """The interval conditions with bound aliases, the most selective first: by counts, otherwise by kind."""
        alias, others = self._aliases[position], {self._aliases[other] for other in bound}
        found = [meet for meet in self._meets if alias in (ends := {meet.left.alias, meet.right.alias}) and ends & others]
        if self._counts is not None:
            return sorted(found, key=self._counts.share)
        return sorted(found, key=_is_bounded, reverse=True)

    def _step(self, position: int, bound: list[int]) -> Step:
        alias = self._aliases[position]
        keys, meets = self._key(position, bound), self._meeting(position, bound)
        inputs = [(meet.left, meet.right) if meet.right.alias == alias else (meet.right, meet.left) for meet in meets]
        probe = (self._position[inputs[0][0].alias], inputs[0][0]) if inputs else None
        index = self._number(Index(position, tuple(column for column, _ in keys), inputs[0][1] if inputs else None))
        names = {self._aliases[other] for other in bound}
        conditions: list[Residual] = [*self._residual, *self._doubtful]
        residual = tuple(one for one in conditions if alias in (ends := {ref.alias for ref in one.columns}) and ends <= {alias, *names})
        checked = tuple((self._position[theirs.alias], theirs, mine) for theirs, mine in inputs[1:])
        return Step(index, tuple(source for _, source in keys), probe, checked, residual)

    def _number(self, index: Index) -> int:
        if index not in self.indexes:
            self.indexes.append(index)
        return self.indexes.index(index)


def _is_bounded(meet: Meet) -> bool:
    """Whether both sides are bounded intervals, not rays."""
    return all(span.start is not None and span.end is not None for span in (meet.left, meet.right))
