"""Random views, with random aliases, topology and conditions, and their naive twins, which bind one alias at a time; each condition is a
function."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from service.planning.planner import alternatives
from service.views.parse import parse_view
from tests.service.twin import _INF, DEFINITIONS, Row, TwinView, _below, _equal, _meet, _not_null, _slot, _stay

SPANS = {"a": ("stay", _stay), "b": ("slot", _slot)}
COLUMNS = {
    "a": {"whole": ["floor", "id"], "text": ["room", "tag"], "time": ["starts"]},
    "b": {"whole": ["floor", "nr"], "text": ["room", "note"], "time": ["starts"]},
}
_PARTS = ("alone", "alone", "self", "heap", "mixed", "boxes", "hierarchical")
Test = Callable[[Row, Row], bool]
LEAST_ROWS, MOST_ROWS = 8, 3000  # of a view: it should have some, and its twin is naive


class TooMany(Exception):
    """The twin has more rows than a test should compare: draw another view."""


def _hierarchical(rng: random.Random, most: int) -> list[list[int]]:
    """Return the aliases of each variable: one variable that all aliases have, then perhaps one of some of them, one of some of these, and
    one of some of the others."""
    count = rng.randrange(2, max(3, min(most, 4) + 1))
    everyone = list(range(count))
    some = sorted(rng.sample(everyone, rng.randrange(2, count + 1)))
    rest = [position for position in everyone if position not in some]
    fewer = sorted(rng.sample(some, 2))
    return [everyone, *(one for one in (some, fewer, rest) if len(one) > 1 and rng.random() < 0.6)]


def _acyclic(rng: random.Random, most: int) -> list[list[int]]:
    """Each alias except the first has a variable in common with an earlier one, perhaps one that others have, too. The first three are a
    path, so that the join is not hierarchical."""
    variables = [[0, 1], [1, 2]]
    for position in range(3, rng.randrange(3, max(4, min(most, 5) + 1))):
        known = rng.choice(variables)
        if rng.random() < 0.3:
            known.append(position)
        else:
            variables.append([rng.choice(known), position])
    return variables


def _cyclic(rng: random.Random, most: int) -> list[list[int]]:
    triangle, square = [[0, 1], [1, 2], [0, 2]], [[0, 1], [1, 2], [2, 3], [0, 3]]
    bow_tie = [[0, 1], [1, 2], [3, 4], [4, 5], [0, 2, 3, 5]]  # two triangles that have a variable in common
    return rng.choice([triangle, triangle, *([square] if most >= 4 else []), *([bow_tie] if most >= 6 else [])])


NATURAL = {"hierarchical": _hierarchical, "acyclic": _acyclic, "cyclic": _cyclic}


class RandomView(TwinView):
    """`style`: what edges are made of.

    heap     one interval an alias, on any connected graph, perhaps one key for all, perhaps a comparison that is checked
    boxes    two aliases that meet in several dimensions
    self     two aliases of one relation, told apart by `<` or `<>`
    mixed    each edge what it will: tree or cycles
    clique   three or four aliases of one relation, all overlapping, with a key or none, in the order of a column
    product  two or three of these side by side

    Natural joins of a class: hierarchical (a star, perhaps more levels), acyclic (a tree of edges), cyclic (a triangle, square, bow-tie).
    """

    def __init__(self, rng: random.Random, style: str, most: int) -> None:
        self._aliases: list[tuple[str, str]] = []
        self._join: list[dict[str, Any]] = []
        self._where: list[dict[str, Any]] = []
        self._tests: list[list[tuple[int, Test]]] = []
        self._kept: dict[int, Callable[[Row], bool]] = {}
        self._overlapping: set[int] = set()
        self._memory: tuple[Any, list[tuple[Row, ...]]] = (None, [])
        self._memory_of_rows: tuple[Any, dict[tuple[Any, ...], tuple[Any, ...]]] = (None, {})
        self._draw(rng, style, most)
        names = [f"t{position}.{'tag' if name == 'a' else 'note'} as c{position}" for position, (_, name) in enumerate(self._aliases)]
        ends = [SPANS[name][1] if position in self._overlapping else _everywhere for position, (_, name) in enumerate(self._aliases)]
        definition = {"from": dict(self._aliases), "join": self._join, "where": self._where, "select": names}
        super().__init__(self._aliases, definition, _always, _selected, ends if self._overlapping else [])

    def _draw(self, rng: random.Random, style: str, most: int) -> None:
        if style == "product":
            for part in range(rng.randrange(2, 4)):
                first = len(self._aliases)
                left = most - first
                if left < 1:
                    break
                self._draw(rng, rng.choice(_PARTS) if left > 1 else "alone", min(3, left))
                if part:
                    self._join.append({"cross": [f"t{rng.randrange(first)}", f"t{first}"]})
            return None
        first = len(self._aliases)
        if style in NATURAL:
            return self._natural(rng, NATURAL[style](rng, most), first)
        count = {"alone": 1, "boxes": 2, "self": 2, "clique": min(most, rng.randrange(3, 5))}.get(style, rng.randrange(2, max(2, most) + 1))
        relation = rng.choice("ab")
        for position in range(first, first + count):
            self._aliases.append((f"t{position}", relation if style in ("self", "clique") else rng.choice("ab")))
            self._tests.append([])
        if style == "alone" or (style != "self" and rng.random() < 0.4):
            self._filter(rng, rng.randrange(first, first + count))
        for position in range(first + 1, first + count):
            self._edge(rng, style, first if style == "clique" else rng.randrange(first, position), position)
        for near in range(first, first + count):
            for far in range(near + 1, first + count):
                if rng.random() < {"heap": 0.3, "mixed": 0.15, "clique": 1.0}.get(style, 0.0):
                    self._edge(rng, style, near, far)
        if style in ("self", "clique"):
            self._order(rng, first, count)
        if style in ("heap", "clique") and rng.random() < 0.5:
            for column in rng.choice((["room"], ["floor"], ["room", "floor"])):
                for position in range(first + 1, first + count):
                    self._equal(position - 1, position, column)
        if style in ("heap", "mixed", "boxes") and rng.random() < 0.3:
            self._comparison(rng, *sorted(rng.sample(range(first, first + count), 2)))
        return None

    def _natural(self, rng: random.Random, variables: list[list[int]], first: int) -> None:
        """Each variable belongs to these aliases, counted from `first`, in a column of each that no other variable uses."""
        count = 1 + max(position for aliases in variables for position in aliases)
        for position in range(first, first + count):
            self._aliases.append((f"t{position}", rng.choice("ab")))
            self._tests.append([])
        free = [{kind: rng.sample(names, len(names)) for kind, names in COLUMNS[name].items()} for _, name in self._aliases[first:]]
        for aliases in variables:
            kinds = [kind for kind in ("whole", "whole", "text", "time") if all(free[position][kind] for position in aliases)]
            kind = rng.choice(kinds[:-1] or kinds)  # times are rarely equal
            columns = [free[position][kind].pop() for position in aliases]
            for i in range(1, len(aliases)):
                self._equal(first + aliases[i - 1], first + aliases[i], columns[i - 1], columns[i])
        if rng.random() < 0.3:
            self._filter(rng, rng.randrange(first, first + count))

    def _filter(self, rng: random.Random, position: int) -> None:
        column, value = ("tag", rng.choice("uv")) if self._aliases[position][1] == "a" else ("note", rng.choice("no"))
        self._where.append({"column": f"t{position}.{column}", "op": "=", "value": value})
        self._kept[position] = lambda row: row[column] == value

    def _edge(self, rng: random.Random, style: str, near: int, far: int) -> None:
        if style in ("heap", "self", "clique"):
            return self._overlap(near, far)
        if style == "boxes":
            for meet in rng.sample((self._overlap, self._within, self._floors, self._later), rng.randrange(2, 4)):
                meet(near, far)
            if rng.random() < 0.5:
                self._equal(near, far, "room")
            return None
        meet = rng.choice((None, self._overlap, self._overlap, self._within, self._floors, self._later))
        for column in rng.choice((["room"], ["floor"], ["room", "floor"], *([] if meet is None else [[], []]))):
            self._equal(near, far, column)
        if meet is not None:
            meet(near, far)
        return None

    def _say(self, near: int, far: int, condition: dict[str, Any], test: Test) -> None:
        """`test` takes the row of the earlier alias first."""
        self._join.append(condition)
        self._tests[far].append((near, test))

    def _equal(self, near: int, far: int, column: str, its: str | None = None) -> None:
        other = its or column
        self._say(near, far, {"equal": [f"t{near}.{column}", f"t{far}.{other}"]}, lambda x, y: _equal(x[column], y[other]))

    def _overlap(self, near: int, far: int) -> None:
        p, q = self._aliases[near][1], self._aliases[far][1]
        self._overlapping |= {near, far}
        condition = {"overlaps": [f"t{near}.{SPANS[p][0]}", f"t{far}.{SPANS[q][0]}"]}
        self._say(near, far, condition, lambda x, y: _meet(SPANS[p][1](x), SPANS[q][1](y)))

    def _within(self, near: int, far: int) -> None:
        condition = {"within": [f"t{near}.starts", f"t{far}.starts"], "distance": 4}
        self._say(near, far, condition, lambda x, y: _not_null(x["starts"], y["starts"]) and abs(x["starts"] - y["starts"]) <= 4)

    def _floors(self, near: int, far: int) -> None:
        condition = {"at_most": [f"t{near}.floor", f"t{far}.floor"]}
        self._say(near, far, condition, lambda x, y: _not_null(x["floor"], y["floor"]) and x["floor"] <= y["floor"])

    def _later(self, near: int, far: int) -> None:
        condition = {"less": [f"t{far}.ends", f"t{near}.starts"]}
        self._say(near, far, condition, lambda x, y: _not_null(y["ends"], x["starts"]) and y["ends"] < x["starts"])

    def _comparison(self, rng: random.Random, near: int, far: int) -> None:
        """A comparison that is not a dimension: of texts, and of floats that may be NaN."""
        if self._aliases[near][1] == self._aliases[far][1] == "a" and rng.random() < 0.6:
            self._say(near, far, {"less": [f"t{near}.weight", f"t{far}.weight"]}, lambda x, y: _below(x["weight"], y["weight"]))
        elif rng.random() < 0.5:
            condition = {"not_equal": [f"t{near}.room", f"t{far}.room"]}
            self._say(near, far, condition, lambda x, y: _not_null(x["room"], y["room"]) and x["room"] != y["room"])
        else:
            condition = {"at_most": [f"t{near}.room", f"t{far}.room"]}
            self._say(near, far, condition, lambda x, y: _not_null(x["room"], y["room"]) and x["room"] <= y["room"])

    def _order(self, rng: random.Random, first: int, count: int) -> None:
        """By `<` from alias to alias, or `<>` between all: of the key (for b only a part of it), or of a column with equal values."""
        column = rng.choice(("id", "id", "tag") if self._aliases[first][1] == "a" else ("nr", "site"))
        if rng.random() < 0.6:
            for position in range(first + 1, first + count):
                condition = {"less": [f"t{position - 1}.{column}", f"t{position}.{column}"]}
                self._say(position - 1, position, condition, lambda x, y: x[column] < y[column])
        else:
            for near in range(first, first + count):
                for far in range(near + 1, first + count):
                    condition = {"not_equal": [f"t{near}.{column}", f"t{far}.{column}"]}
                    self._say(near, far, condition, lambda x, y: x[column] != y[column])

    def combinations(self, relations: dict[str, dict[tuple[Any, ...], Row]]) -> list[tuple[Row, ...]]:
        if self._memory[0] is relations:
            return self._memory[1]
        bound: list[tuple[Row, ...]] = [()]
        for position, (_, name) in enumerate(self.aliases):
            rows = [row for row in relations[name].values() if position not in self._kept or self._kept[position](row)]
            tests = self._tests[position]
            bound = [(*some, row) for some in bound for row in rows if all(test(some[near], row) for near, test in tests)]
            if len(bound) > 40 * MOST_ROWS:
                raise TooMany
        self._memory = (relations, bound)
        return bound

    def rows(self, relations: dict[str, dict[tuple[Any, ...], Row]]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        if self._memory_of_rows[0] is not relations:
            self._memory_of_rows = (relations, super().rows(relations))
        return self._memory_of_rows[1]


class KeptBy(TwinView):
    """The same view, maintained by another algorithm."""

    def __init__(self, view: TwinView, algorithm: str) -> None:
        super().__init__(view.aliases, view.definition | {"algorithm": algorithm}, view.on, view.select, view.ends)
        self._view = view

    def combinations(self, relations: dict[str, dict[tuple[Any, ...], Row]]) -> list[tuple[Row, ...]]:
        return self._view.combinations(relations)

    def rows(self, relations: dict[str, dict[tuple[Any, ...], Row]]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        return self._view.rows(relations)


def by_all_algorithms(view: RandomView, name: str) -> dict[str, TwinView]:
    """Return the view as planned, and with each other algorithm that is correct for it."""
    found = parse_view(name, view.definition, DEFINITIONS)
    names = [found.plan.algorithm, *(plan.algorithm for plan in alternatives(found.query, DEFINITIONS))]
    assert len(set(names)) == len(names), names
    return {f"{name}_{algorithm.replace('-', '_')}": KeptBy(view, algorithm) for algorithm in names}


def _always(*rows: Row) -> bool:
    return True


def _everywhere(row: Row) -> tuple[float, float]:
    return -_INF, _INF


def _selected(*rows: Row) -> Row:
    return {f"c{position}": row["tag" if "tag" in row else "note"] for position, row in enumerate(rows)}
