"""UNION and EXCEPT over quadtrees: the engine's twin with drawn views, null and zero, keys and look-ups of rows that are values, brute
force, plans, refusals."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from livejoin.wire.batch import DELETE, UPSERT
from livejoin.wire.kinds import KEPT_TYPES
from service.access.access_token import EVERYONE
from service.api.views import _explain as explained
from service.checking.comparison import agrees, table_of
from service.checking.recomputation import recompute, total
from service.errors import Problem
from service.planning.planner import alternatives
from service.reading.cursors import open_rows
from service.tables.arrow import is_text
from service.views.joins.qdag_trees import Keys
from service.views.parse import parse_view
from tests.service.definitions import refused
from tests.service.engine.test_engine import prepared, read_all, run
from tests.service.running import check, opened
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

    def __init__(self, definition: dict[str, Any], rows_of: Any) -> None:
        super().__init__([], definition, lambda: True, lambda: {}, [])
        self._rows_of = rows_of

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
            inputs = expression(depth - 1, f"{name}x", right), expression(depth - 1, f"{name}y", right or operation == "except")
            return Both(operation, *inputs)

        found = expression(rng.choice((1, 1, 2)), "t", False)
        if isinstance(found, Both):
            made = Sets(found.definition(), found.rows)
            try:
                parse_view("v", made.definition, DEFINITIONS)
            except Problem as problem:
                assert problem.type == "unsupported-query", (made.definition, problem)
            else:
                return made


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (0, *range(2, 40)))])
def test_random_views(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    views: dict[str, TwinView] = {f"v{i}": drawn(rng) for i in range(6)}
    run(tmp_path, 1400 + seed, 12, lambda source: source.random.randrange((5, 25)[seed % 2]), 6, views)


def by_sql(text: str, rows_of: Any) -> Sets:
    return Sets({"sql": text}, lambda relations: set(rows_of(*(list(relations[name].values()) for name in "ab"))))


VIEWS: dict[str, TwinView] = {
    "numbers": by_sql(
        "SELECT x.id AS n FROM a x UNION SELECT y.nr FROM b y",
        lambda a, b: {(x["id"],) for x in a} | {(y["nr"],) for y in b},
    ),
    "twice": by_sql(  # L3: a branch twice
        "SELECT x.floor AS f, x.room AS r FROM a x UNION SELECT x.floor, x.room FROM a x",
        lambda a, b: {(x["floor"], x["room"]) for x in a},
    ),
    "without_itself": by_sql(
        "SELECT x.floor AS f, x.room AS r FROM a x EXCEPT SELECT y.floor, y.room FROM a y", lambda a, b: set()
    ),
    "less_both": by_sql(
        "(SELECT x.floor AS f FROM a x UNION SELECT y.floor FROM b y)"
        " EXCEPT (SELECT y.nr FROM b y UNION SELECT x.id FROM a x WHERE x.tag = 'u')",
        lambda a, b: {(one["floor"],) for one in (*a, *b)} - {(y["nr"],) for y in b} - {(x["id"],) for x in a if x["tag"] == "u"},
    ),
    "pairs": by_sql(
        "SELECT x.id AS i, x.floor AS f, y.nr AS n FROM a x JOIN b y ON x.floor = y.floor"
        " EXCEPT SELECT x.id, y.floor, y.nr FROM a x JOIN b y ON x.id = y.nr",
        lambda a, b: {(x["id"], x["floor"], y["nr"]) for x in a for y in b if _equal(x["floor"], y["floor"])}
        - {(x["id"], y["floor"], y["nr"]) for x in a for y in b if x["id"] == y["nr"]},
    ),
    "weights": by_sql(
        "SELECT x.weight AS w, x.room AS r FROM a x EXCEPT SELECT x.weight, x.room FROM a x WHERE x.tag = 'v'",
        lambda a, b: {(plain(x["weight"]), x["room"]) for x in a} - {(plain(x["weight"]), x["room"]) for x in a if x["tag"] == "v"},
    ),
    "times": by_sql(
        "SELECT x.ends AS e FROM a x UNION SELECT y.ends FROM b y EXCEPT SELECT y.starts FROM b y",
        lambda a, b: {(one["ends"],) for one in (*a, *b)} - {(y["starts"],) for y in b},
    ),
    "never": by_sql(
        "SELECT x.id AS n FROM a x WHERE x.id = NULL UNION SELECT y.nr FROM b y EXCEPT SELECT x.id FROM a x WHERE x.tag = NULL",
        lambda a, b: {(y["nr"],) for y in b},
    ),
}  # fmt: skip


def test_views(tmp_path: Path) -> None:
    run(tmp_path, 1450, 25, lambda source: source.random.randrange(9), 7, VIEWS)


def test_null_equals_null_and_zero_zero(tmp_path: Path) -> None:
    """Also in the text of rows: -0.0 is told as 0.0, so that what goes looks as what came."""
    engine = prepared(tmp_path, {"weights": VIEWS["weights"]})
    feed = engine.views["weights"].feed
    assert feed is not None
    subscription = feed.subscribe()
    rows = [a_row(1, weight=-0.0), a_row(2, weight=0.0), a_row(3, weight=math.nan, room=None), a_row(4, weight=None), a_row(5, weight=None)]
    engine.apply(to_batch([("a", UPSERT, row) for row in rows]))
    assert read_all(open_rows(engine.readers, "weights")) == Counter([(0.0, "A"), ("NaN", None), (None, "A")])
    deleted = [("a", DELETE, {"id": 2}), ("a", DELETE, {"id": 4})]
    engine.apply(to_batch([*deleted, ("a", UPSERT, a_row(6, weight=math.nan, room=None, tag="v"))]))
    assert read_all(open_rows(engine.readers, "weights")) == Counter([(0.0, "A"), (None, "A")])
    engine.apply(to_batch([("a", UPSERT, a_row(1, weight=-0.0, tag="w")), ("a", DELETE, {"id": 5})]))
    engine.apply(to_batch([("a", DELETE, {"id": 1})]))
    emitted = [(chunk.op, row) for chunk in subscription.next() if chunk.kind == "rows" and chunk.rows for row in chunk.rows.to_pylist()]
    assert sorted((op, str(row["w"]), row["r"]) for op, row in emitted) == [
        ("delete", "0.0", "A"), ("delete", "None", "A"), ("delete", "nan", None),
        ("insert", "0.0", "A"), ("insert", "None", "A"), ("insert", "nan", None),
    ]  # fmt: skip
    check(engine)
    engine.close()


def test_keys_are_rows_and_are_looked_up_by_all_columns(tmp_path: Path) -> None:
    engine = prepared(tmp_path, {"twice": VIEWS["twice"]})
    feed = engine.views["twice"].feed
    assert feed is not None
    subscription = feed.subscribe()
    engine.apply(to_batch([("a", UPSERT, a_row(i, floor=i % 2)) for i in range(100)]))
    chunk = subscription.next()[0]
    assert chunk.keys is not None and chunk.rows is not None and chunk.keys.schema.names == ["row.f", "row.r"]
    assert chunk.keys.num_rows == 2, "many rows of one value are one"
    assert read_all(open_rows(engine.readers, "twice", point=("row", {"f": "1", "r": "A"}))) == Counter([(1, "A")])
    assert read_all(open_rows(engine.readers, "twice", point=("row", {"f": "7", "r": "A"}))) == Counter()
    for point in (("row", {"f": "1"}), ("x", {"id": "1"}), ("row", {"f": "1", "r": "A", "id": "1"})):
        with pytest.raises(Problem) as caught:
            open_rows(engine.readers, "twice", point=point)
        assert caught.value.type == "bad-parameter" and "where.row.f, where.row.r" in caught.value.detail
    with pytest.raises(Problem) as caught:
        open_rows(engine.readers, "twice", point=("row", {"f": "x", "r": "A"}))
    assert caught.value.type == "bad-parameter" and "where.row.f" in caught.value.detail
    with pytest.raises(Problem) as caught:
        open_rows(engine.readers, "twice", window={"": ("1", "2")})
    assert caught.value.type == "bad-parameter"
    engine.close()


def test_a_row_whose_values_another_row_has_is_no_change(tmp_path: Path) -> None:
    engine = prepared(tmp_path, {"pairs": VIEWS["pairs"], "twice": VIEWS["twice"]})
    engine.apply(to_batch([("a", UPSERT, a_row(1)), ("b", UPSERT, b_row(7)), ("b", UPSERT, b_row(7, site="S"))]))
    assert read_all(open_rows(engine.readers, "pairs")) == Counter([(1, 1, 7)])
    feed = engine.views["pairs"].feed
    assert feed is not None
    subscription = feed.subscribe()
    engine.apply(to_batch([("b", DELETE, {"site": "S", "nr": 7})]))
    engine.apply(to_batch([("b", UPSERT, b_row(7, room="C"))]))
    assert not [chunk for chunk in subscription.next() if chunk.kind == "rows"]
    engine.apply(to_batch([("b", UPSERT, b_row(1)), ("b", UPSERT, b_row(7, floor=2))]))
    rows = [(chunk.op, *row.values()) for chunk in subscription.next() if chunk.rows for row in chunk.rows.to_pylist()]
    assert rows == [("delete", 1, 1, 7)], "b 1 joins by floor, and is the right side's too"
    engine.close()


def test_a_delta_that_is_too_large_is_not_kept(tmp_path: Path) -> None:
    definition = VIEWS["numbers"].definition | {"changes": {"retain_rows": 5, "retain_bytes": 1 << 20}}
    engine = prepared(tmp_path, {"numbers": Sets(definition, VIEWS["numbers"]._rows_of)})  # type: ignore[attr-defined]
    feed = engine.views["numbers"].feed
    assert feed is not None
    subscription = feed.subscribe()
    engine.apply(to_batch([("a", UPSERT, a_row(i)) for i in range(50)]))
    problem = subscription.next()[0].problem
    assert problem is not None and problem.type == "delta-too-large"
    assert sum(read_all(open_rows(engine.readers, "numbers")).values()) == 50
    engine.close()


def test_brute_force_agrees(tmp_path: Path) -> None:
    """That of `livejoin check`, and it would notice an EXCEPT that is passed over, or a row twice."""
    engine, source = prepared(tmp_path, VIEWS), Source(3, 30)
    engine.apply(to_batch([(name, UPSERT, source.row(name)) for name in "ab" for _ in range(60)]))
    tables = {name: table_of(engine, name) for name in engine.relations}
    for name, live in engine.views.items():
        assert agrees(engine, name, tables, print), name
        query = live.view.query
        emitted, alone = (total(recompute(one, live.definitions, tables)).rows for one in (query, query.of_branch(0)))
        if name != "numbers":  # there the second side may have nothing new
            assert emitted != alone, name
    engine.close()


def test_what_explain_tells_of_a_live_one(tmp_path: Path) -> None:
    engine = prepared(tmp_path, VIEWS)
    engine.apply(to_batch([("a", UPSERT, a_row(i, floor=i)) for i in range(20)] + [("b", UPSERT, b_row(i)) for i in range(5)]))
    assert len(read_all(open_rows(engine.readers, "numbers"))) == 20
    emitted = explained(engine, EVERYONE, VIEWS["numbers"].definition)
    plan = emitted["plan"]
    assert (plan["algorithm"], plan["guarantee"], emitted["alternatives"]) == ("lqdag", "best-effort", [])
    assert plan["class"] == "(selection, 1 relation) UNION (selection, 1 relation)" and "natural" not in emitted
    assert "the sum of the AGM of each SELECT" in plan["bounds"]["delay"] and "null equals null" in " ".join(plan["notes"])
    assert emitted["measured"]["numbers"]["counters"] == {"looked_up": 5, "excluded": 0, "repeated": 5}
    plan = explained(engine, EVERYONE, VIEWS["pairs"].definition)["plan"]
    assert plan["class"].count("natural join, 2 relations") == 2 and " EXCEPT (natural join" in plan["class"]
    engine.close()


def test_relations_of_all_sides_are_in_use(tmp_path: Path) -> None:
    """Of those that never have a row too."""
    engine = prepared(tmp_path, {"never": VIEWS["never"]})
    for name in "ab":
        with pytest.raises(Problem) as caught:
            engine.drop_relation(name)
        assert caught.value.type == "relation-in-use" and caught.value.extensions["views"] == ["never"]
    engine.close()
    engine = opened(tmp_path)
    assert engine.views["never"].state == "live"
    engine.close()


def test_sql_and_json_are_the_same_view() -> None:
    inputs = [{"from": {"x": "a"}, "select": ["x.id as n"]}, {"from": {"y": "b"}, "select": ["y.nr"]}]
    text = "SELECT x.id AS n FROM a x {} SELECT y.nr FROM b y"
    for field in ("union", "except"):
        of_json = parse_view("v", {field: inputs}, DEFINITIONS)
        assert of_json.query == parse_view("v", {"sql": text.format(field.upper())}, DEFINITIONS).query
        assert of_json.plan.algorithm == "lqdag" and alternatives(of_json.query, DEFINITIONS) == []
    nested = {"except": [{"union": [*inputs, inputs[0]]}, {"union": inputs}]}
    same = f"({text.format('UNION')} UNION SELECT x.id AS n FROM a x) EXCEPT ({text.format('UNION')})"
    assert parse_view("v", nested, DEFINITIONS).query == parse_view("v", {"sql": same}, DEFINITIONS).query


def test_nulls_are_values_of_every_type() -> None:
    """Beside the value that stands in their place."""
    for type_ in KEPT_TYPES.values():
        keys = Keys.of_types([type_, pa.int64()], [True, False])
        word = pa.int32() if type_ == pa.date32() else pa.int64()
        some = pa.scalar("", type_).as_py() if is_text(type_) else pa.scalar(0, word).cast(type_).as_py()
        columns = [pa.array([None, some, None, some], type_), pa.array([1, 1, 1, None])]
        assert keys.domain.acquire(keys.keyed(columns)).tolist() == [0, 1, 0, -1]


def test_a_view_with_an_alias_that_is_reserved_now_still_opens() -> None:
    definition = {"from": {"row": "a"}, "select": ["row.id"]}
    assert refused(definition, DEFINITIONS).type == "unsupported-query"
    assert parse_view("v", definition, DEFINITIONS, kept=True).query.aliases == (("row", "a"),)


SELECT = "SELECT x.id AS n FROM a x"


def test_other_algorithms_and_promises_are_refused() -> None:
    definition = VIEWS["pairs"].definition
    union = {"sql": f"{SELECT} JOIN b y ON x.id = y.nr UNION SELECT nr FROM b"}
    for name in ("qdag", "nested-loop", "minesweeper", "interval-tree"):
        problem = refused(definition | {"algorithm": name}, DEFINITIONS)
        assert problem.type == "infeasible-view" and "is defined by EXCEPT" in problem.detail and '"lqdag"' in problem.detail
        assert "is defined by UNION" in refused(union | {"algorithm": name}, DEFINITIONS).detail
    problem = refused(VIEWS["numbers"].definition | {"guarantee": "delay"}, DEFINITIONS)
    assert problem.type == "infeasible-view" and "UNION" in problem.extensions["theorem"]
