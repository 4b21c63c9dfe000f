"""UNION and EXCEPT over quadtrees: the engine's twin with drawn views, null and zero, keys and look-ups of rows that are values, brute
force, plans, refusals."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from service.api.views import _explain as explained
from service.commands.check import _agrees, _table
from service.errors import Problem
from service.instance import Instance
from service.planning.planner import alternatives
from service.reading.cursors import open_rows
from service.views.parse import parse_view
from service.wire.batch import DELETE, UPSERT
from tests.service.definitions import refused
from tests.service.engine.test_engine import opened, prepared, read_all, run
from tests.service.running import check
from tests.service.twin import DEFINITIONS, Row, Source, TwinView, _equal, to_batch
from tests.service.views.joins.test_view_tree_join import a as a_row
from tests.service.views.joins.test_view_tree_join import b as b_row

Relations = dict[str, dict[tuple[Any, ...], Row]]
Values = tuple[Any, ...]
Ref = tuple[str, str]
INTS, TEXTS = {"a": ["id", "floor", "floor"], "b": ["nr", "floor", "floor"]}, {"a": ["room", "tag"], "b": ["room", "note", "site"]}
COLUMNS = {"int": INTS, "text": TEXTS, "float": {"a": ["weight"]}}
SIGNATURES = [("int",), ("int", "text"), ("int", "int"), ("text", "text"), ("int", "int", "text"), ("float", "int"), ("int", "int", "int")]


class Sets(TwinView):
    """Rows that are values: by a function of the relations."""

    def __init__(self, definition: dict[str, Any], names: list[str], rows_of: Any) -> None:
        super().__init__([], definition, lambda: True, lambda: {}, [])
        self.names, self._rows_of = names, rows_of

    def rows(self, relations: Relations) -> dict[Values, Values]:
        return {row: row for row in self._rows_of(relations)}


def plain(value: Any) -> Any:
    """NaN equals NaN, 0.0 equals -0.0."""
    return ("NaN" if math.isnan(value) else value + 0.0) if isinstance(value, float) else value


class Select:
    """A natural join, less what goes with a row of each alias of a NOT EXISTS group; its columns."""

    def __init__(
        self, aliases: dict[str, str], equal: list[tuple[Ref, Ref]], columns: list[Ref], group: tuple[str, list[tuple[Ref, str]]] | None
    ) -> None:
        self.aliases, self.equal, self.columns, self.group = aliases, equal, columns, group

    def definition(self) -> dict[str, Any]:
        made: dict[str, Any] = {
            "from": self.aliases,
            "join": [{"equal": [".".join(x), ".".join(y)]} for x, y in self.equal],
            "select": [f"{'.'.join(ref)} as c{at}" for at, ref in enumerate(self.columns)],
        }
        if self.group is not None:
            relation, pairs = self.group
            made["not_exists"] = [{"from": {"n": relation}, "join": [{"equal": [".".join(x), f"n.{y}"]} for x, y in pairs]}]
        return made

    def rows(self, relations: Relations) -> set[Values]:
        found = set()
        for rows in product(*(relations[name].values() for name in self.aliases.values())):
            known = dict(zip(self.aliases, rows, strict=True))
            if all(_equal(known[x][c], known[y][d]) for (x, c), (y, d) in self.equal) and not self._is_absent(known, relations):
                found.add(tuple(plain(known[alias][column]) for alias, column in self.columns))
        return found

    def _is_absent(self, known: dict[str, Row], relations: Relations) -> bool:
        if self.group is None:
            return False
        name, pairs = self.group
        return any(all(_equal(known[x][c], row[d]) for (x, c), d in pairs) for row in relations[name].values())


class Both:
    """UNION or EXCEPT."""

    def __init__(self, operation: str, left: Select | Both, right: Select | Both) -> None:
        self.operation, self.left, self.right = operation, left, right

    def definition(self) -> dict[str, Any]:
        return {self.operation: [self.left.definition(), self.right.definition()]}

    def rows(self, relations: Relations) -> set[Values]:
        left, right = self.left.rows(relations), self.right.rows(relations)
        return left | right if self.operation == "union" else left - right


def drawn_select(rng: random.Random, kinds: tuple[str, ...], name: str, right: bool) -> Select:
    """One to three aliases, each joined by a selected column."""
    aliases = {f"{name}0": rng.choice("ab") if "float" not in kinds else "a"}
    columns: list[Ref] = [(f"{name}0", rng.choice(COLUMNS[kind][aliases[f"{name}0"]])) for kind in kinds]
    equal: list[tuple[Ref, Ref]] = []
    for number in range(1, rng.choice((1, 1, 2, 2, 3))):
        alias, relation = f"{name}{number}", rng.choice("ab")
        aliases[alias] = relation
        for _ in range(rng.choice((1, 1, 2))):
            at = rng.choice([at for at, kind in enumerate(kinds) if kind != "float"])
            if columns[at][0] != alias:
                equal.append((columns[at], (alias, rng.choice(COLUMNS[kinds[at]][relation]))))
        at = rng.choice([at for at, kind in enumerate(kinds) if kind != "float"])
        if rng.random() < 0.5:  # a further column of the new alias
            columns[at] = alias, rng.choice(COLUMNS[kinds[at]][relation])
    group = None
    if not right and rng.random() < 0.3:
        relation = rng.choice("ab")
        at = rng.choice([at for at, kind in enumerate(kinds) if kind != "float"])
        group = relation, [(columns[at], rng.choice(COLUMNS[kinds[at]][relation]))]
    return Select(aliases, equal, columns, group)


def drawn(rng: random.Random) -> Sets:
    """Two to four SELECTs."""
    while True:
        kinds = rng.choice(SIGNATURES)

        def expression(depth: int, name: str, right: bool) -> Select | Both:
            if depth == 0 or rng.random() < 0.2:
                return drawn_select(rng, kinds, name, right)  # noqa: B023
            operation = "union" if right else rng.choice(("union", "except"))
            sides = expression(depth - 1, f"{name}x", right), expression(depth - 1, f"{name}y", right or operation == "except")
            return Both(operation, *sides)

        found = expression(rng.choice((1, 1, 2)), "t", False)
        if isinstance(found, Both):
            made = Sets(found.definition(), [f"c{at}" for at in range(len(kinds))], found.rows)
            try:
                parse_view("v", made.definition, DEFINITIONS)
            except Problem as problem:
                assert problem.type == "unsupported-query", (made.definition, problem)
            else:
                return made


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 40))])
def test_random_views(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    views: dict[str, TwinView] = {f"v{i}": drawn(rng) for i in range(6)}
    run(tmp_path, 1400 + seed, 12, lambda source: source.random.randrange((5, 25)[seed % 2]), 6, views)


def by_sql(text: str, names: str, rows_of: Any) -> Sets:
    return Sets({"sql": text}, names.split(), lambda relations: set(rows_of(*(list(relations[name].values()) for name in "ab"))))


VIEWS: dict[str, TwinView] = {
    "numbers": by_sql(
        "SELECT x.id AS n FROM a x UNION SELECT y.nr FROM b y", "n",
        lambda a, b: {(x["id"],) for x in a} | {(y["nr"],) for y in b},
    ),
    "twice": by_sql(  # L3: a branch twice
        "SELECT x.floor AS f, x.room AS r FROM a x UNION SELECT x.floor, x.room FROM a x", "f r",
        lambda a, b: {(x["floor"], x["room"]) for x in a},
    ),
    "without_itself": by_sql(
        "SELECT x.floor AS f, x.room AS r FROM a x EXCEPT SELECT y.floor, y.room FROM a y", "f r", lambda a, b: set()
    ),
    "less_both": by_sql(
        "(SELECT x.floor AS f FROM a x UNION SELECT y.floor FROM b y)"
        " EXCEPT (SELECT y.nr FROM b y UNION SELECT x.id FROM a x WHERE x.tag = 'u')", "f",
        lambda a, b: {(one["floor"],) for one in (*a, *b)} - {(y["nr"],) for y in b} - {(x["id"],) for x in a if x["tag"] == "u"},
    ),
    "pairs": by_sql(
        "SELECT x.id AS i, x.floor AS f, y.nr AS n FROM a x JOIN b y ON x.floor = y.floor"
        " EXCEPT SELECT x.id, y.floor, y.nr FROM a x JOIN b y ON x.id = y.nr", "i f n",
        lambda a, b: {(x["id"], x["floor"], y["nr"]) for x in a for y in b if _equal(x["floor"], y["floor"])}
        - {(x["id"], y["floor"], y["nr"]) for x in a for y in b if x["id"] == y["nr"]},
    ),
    "weights": by_sql(
        "SELECT x.weight AS w, x.room AS r FROM a x EXCEPT SELECT x.weight, x.room FROM a x WHERE x.tag = 'v'", "w r",
        lambda a, b: {(plain(x["weight"]), x["room"]) for x in a} - {(plain(x["weight"]), x["room"]) for x in a if x["tag"] == "v"},
    ),
    "never": by_sql(
        "SELECT x.id AS n FROM a x WHERE x.id = NULL UNION SELECT y.nr FROM b y EXCEPT SELECT x.id FROM a x WHERE x.tag = NULL", "n",
        lambda a, b: {(y["nr"],) for y in b},
    ),
}  # fmt: skip


def test_views(tmp_path: Path) -> None:
    run(tmp_path, 1450, 25, lambda source: source.random.randrange(9), 7, VIEWS)
