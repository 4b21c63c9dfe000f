"""Views of the matrix: how they are written over edges, and their rows by brute force."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from tests.naive.cover import runs
from tests.naive.outer_join import NaivePart, Named, outer_join
from tests.service.matrix.edges import Condition, compared
from tests.service.matrix.rows import Relation, Row, Tables
from tests.service.stretched import between

Values = Counter[tuple[Any, ...]]
_WORDS = {"optional": "LEFT JOIN", "full": "FULL JOIN", "exists": "EXISTS", "absent": "NOT EXISTS"}


class Edge(NamedTuple):
    """A condition between two aliases."""

    x: str
    y: str
    condition: Condition

    @property
    def text(self) -> str:
        return self.condition.text.format(x=self.x, y=self.y)

    def holds(self, rows: Named) -> bool:
        x, y = rows[self.x], rows[self.y]
        return x is not None and y is not None and self.condition.test(dict(x), dict(y)) is True

    def joins(self, alias: str, others: Iterable[str]) -> bool:
        return alias in (self.x, self.y) and {self.x, self.y} <= {alias, *others}


class Part(NamedTuple):
    """`least`: a filter, the value v of its first own alias is at least that."""

    kind: str
    on: str
    own: Sequence[str]
    edges: Sequence[Edge]
    least: int | None = None

    def holds(self, rows: Named) -> bool:
        return passes(rows[self.own[0]], self.least) and all(edge.holds(rows) for edge in self.edges)

    def conditions(self, without: Sequence[Edge] = ()) -> str:
        return " AND ".join([*(edge.text for edge in self.edges if edge not in without), *filtered(self.own[0], self.least)])


def passes(row: Mapping[str, Any] | None, least: int | None) -> bool:
    return least is None or (row is not None and compared(">=", row["v"], least) is True)


def filtered(alias: str, least: int | None) -> list[str]:
    """Return the filter, half of the time as an expression."""
    return [] if least is None else [f"{alias}.v >= {least}" if least % 2 else f"{alias}.v * 2 >= {2 * least}"]


class View:
    """A join, with parts. `of`: the relation of each alias; `core`: the aliases outside of parts; `least`: as of a part, of the first of
    them."""

    tail = ""

    def __init__(
        self, of: Mapping[str, Relation], core: Sequence[str], edges: Sequence[Edge], parts: Sequence[Part] = (), least: int | None = None
    ) -> None:
        self.of, self.core, self.edges, self.parts, self.least = of, core, edges, parts, least
        self.shown = [*core, *(alias for part in parts if part.kind in ("optional", "full") for alias in part.own)]

    @property
    def text(self) -> str:
        conditions = filtered(self.core[0], self.least)
        for part in self.parts:
            if part.kind in ("exists", "absent"):
                own = ", ".join(f"{self.of[alias].name} {alias}" for alias in part.own)
                conditions.append(f"{_WORDS[part.kind]} (SELECT 1 FROM {own} WHERE {part.conditions()})")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT {self.selected} FROM {self._sources()}{where}{self.tail}"

    @property
    def selected(self) -> str:
        return ", ".join(f"{alias}.{column} AS {alias}_{column}" for alias in self.shown for column in ("id", "v"))

    def _sources(self) -> str:
        text = self._joined(self.core, self.edges)
        for part in self.parts:
            if part.kind not in ("optional", "full"):
                continue
            if len(part.own) == 1:
                text += f" {_WORDS[part.kind]} {self._named(part.own[0])} ON {part.conditions()}"
            else:  # the mirror: what stands before RIGHT JOIN is the part
                within = [edge for edge in part.edges if part.on not in (edge.x, edge.y)]
                text = f"{self._joined(part.own, within)} RIGHT JOIN {text} ON {part.conditions(within)}"
        return text

    def _named(self, alias: str) -> str:
        return f"{self.of[alias].name} {alias}"

    def _joined(self, aliases: Sequence[str], edges: Sequence[Edge]) -> str:
        text = self._named(aliases[0])
        for at, alias in enumerate(aliases[1:], 1):
            on = " AND ".join(edge.text for edge in edges if edge.joins(alias, aliases[:at]))
            text += f" JOIN {self._named(alias)} ON {on}" if on else f" CROSS JOIN {self._named(alias)}"
        return text

    def found(self, tables: Tables) -> list[Named]:
        """Return the rows by alias."""
        core = list[Named]()
        for some in product(*(tables[self.of[alias].name].values() for alias in self.core)):
            rows: Named = dict(zip(self.core, some, strict=True))
            if passes(some[0], self.least) and all(edge.holds(rows) for edge in self.edges):
                core.append(rows)
        parts = [NaivePart(part.kind, part.on, [(alias, self.of[alias].name) for alias in part.own], part.holds) for part in self.parts]
        return outer_join(core, parts, {name: list(rows.values()) for name, rows in tables.items()})

    def shows(self, rows: Named) -> tuple[Any, ...]:
        return tuple(None if (row := rows[alias]) is None else row[column] for alias in self.shown for column in ("id", "v"))

    def rows(self, tables: Tables) -> Values:
        return Counter(map(self.shows, self.found(tables)))

    def looked_up(self, tables: Tables, alias: str, values: Mapping[str, Any]) -> Values:
        """Return those with these values there."""
        found = ((rows, rows[alias]) for rows in self.found(tables))
        return Counter(self.shows(rows) for rows, row in found if row is not None and all(row[name] == values[name] for name in values))

    @property
    def _all_edges(self) -> list[Edge]:
        return [*self.edges, *(edge for part in self.parts for edge in part.edges)]

    def equal(self, alias: str) -> set[str]:
        """The columns by which rows of an alias are joined."""
        return {column for edge in self._all_edges if alias in (edge.x, edge.y) for column in edge.condition.equal}

    @property
    def windows(self) -> set[tuple[str, str]]:
        """The intervals of rows to which a window applies; none if they are in several dimensions."""
        found = set[tuple[str, str]]()
        for edge in self._all_edges:
            if edge.condition.spans is None:
                return set()
            found |= {one for x, y in edge.condition.spans for one in ((edge.x, x), (edge.y, y)) if one[0] in self.shown}
        return found

    def in_window(self, tables: Tables, low: float, high: float) -> Values:
        kept = list[Named]()
        for rows in self.found(tables):
            there = [(alias, interval) for alias, interval in self.windows if rows[alias] is not None]
            ends = [self.of[alias].closed(dict(rows[alias] or {}), interval) for alias, interval in there]
            if all(one is not None and one[0] <= high and one[1] >= low for one in ends):
                kept.append(rows)
        return Counter(map(self.shows, kept))


class Grouped(View):
    """Groups of such rows by columns of the first alias; with MAX, the rows of a changed row's groups are visited, otherwise counted."""

    by: Sequence[str] = ()
    has_max = False

    @property
    def selected(self) -> str:
        last = self.shown[-1]
        found = [f"{self.core[0]}.{column} AS {column}" for column in self.by]
        found += ["COUNT(*) AS n", f"COUNT({last}.id) AS m", f"SUM({last}.v) AS total", *[f"MAX({last}.id) AS last"] * self.has_max]
        return ", ".join(found)

    @property
    def tail(self) -> str:  # type: ignore[override]
        return f" GROUP BY {', '.join(f'{self.core[0]}.{column}' for column in self.by)}" if self.by else ""

    def rows(self, tables: Tables) -> Values:
        groups: dict[tuple[Any, ...], list[Named]] = {} if self.by else {(): []}
        for rows in self.found(tables):
            groups.setdefault(tuple((rows[self.core[0]] or {})[column] for column in self.by), []).append(rows)
        return Counter((*key, *self._emitted(members)) for key, members in groups.items())

    def _emitted(self, members: Sequence[Named]) -> tuple[Any, ...]:
        last = [row for rows in members if (row := rows[self.shown[-1]]) is not None]
        known = [row["v"] for row in last if row["v"] is not None]
        total = sum(known) if known else None
        return len(members), len(last), total, *[max((row["id"] for row in last), default=None)] * self.has_max


class Distinct(View):
    """The distinct values of a column of the first alias; of its key: rows that have a partner."""

    column = "id"

    @property
    def selected(self) -> str:
        return f"DISTINCT {self.core[0]}.{self.column} AS one"

    def rows(self, tables: Tables) -> Values:
        return Counter({((rows[self.core[0]] or {})[self.column],) for rows in self.found(tables)})


class AsOf(View):
    """The first alias's rows, each with the next row of the second by t, among those that meet the edges."""

    op, is_left = "<=", False

    @property
    def text(self) -> str:
        on = " AND ".join([*(edge.text for edge in self.edges), f"y.t {self.op} x.t"])
        return f"SELECT {self.selected} FROM {self._named('x')} ASOF {'LEFT ' * self.is_left}JOIN {self._named('y')} ON {on}"

    def found(self, tables: Tables) -> list[Named]:
        found, turn = list[Named](), 1 if "<" in self.op else -1
        for x in tables[self.of["x"].name].values():
            others = [y for y in tables[self.of["y"].name].values() if compared(self.op, y["t"], x["t"])]
            met = [y for y in others if all(edge.holds({"x": x, "y": y}) for edge in self.edges)]
            if met:
                found.append({"x": x, "y": max(met, key=lambda y: (turn * y["t"], y["id"]))})
            elif self.is_left:
                found.append({"x": x, "y": None})
        return found


class Stretched(View):
    """What the partners of rows of x leave of their intervals, or cover. `intervals`: of x, and of y."""

    covers, intervals = False, ("i", "i")

    @property
    def text(self) -> str:
        (edge,), (mine, theirs) = self.edges, self.intervals
        function, join = ("coverage", "JOIN") if self.covers else ("gaps", "LEFT JOIN")
        shown = f"x.id AS id, {function}(x.{mine}, y.{theirs}) AS free"
        where = f" WHERE {filtered('x', self.least)[0]}" if self.least is not None else ""
        return f"SELECT {shown} FROM {self._named('x')} {join} {self._named('y')} ON {edge.text}{where}"

    def rows(self, tables: Tables) -> Values:
        (edge,), (mine, theirs), found = self.edges, self.intervals, Values()
        for x in tables[self.of["x"].name].values():
            ends = self.of["x"].closed(x, mine)
            if ends is None or not passes(x, self.least):
                continue
            partners = [y for y in tables[self.of["y"].name].values() if edge.holds({"x": x, "y": y})]
            met = [one for y in partners if (one := self.of["y"].closed(y, theirs)) is not None]
            covered = runs((max(ends[0], low), min(ends[1], high)) for low, high in met)
            found += Counter((x["id"], *self.of["x"].shown(mine, one)) for one in (covered if self.covers else between(covered, *ends)))
        return found


class Covered(View):
    """What the intervals of groups of rows cover together."""

    by = "k"

    @property
    def text(self) -> str:
        return f"SELECT x.{self.by} AS {self.by}, coverage(x.i) AS busy FROM {self._named('x')} GROUP BY x.{self.by}"

    def rows(self, tables: Tables) -> Values:
        groups, found = dict[Any, list[Row]](), Values()
        for row in tables[self.of["x"].name].values():
            groups.setdefault(row[self.by], []).append(row)
        for key, members in groups.items():
            covered = runs(ends for row in members if (ends := self.of["x"].closed(row, "i")) is not None)
            found += Counter((key, *self.of["x"].shown("i", one)) for one in covered)
        return found
