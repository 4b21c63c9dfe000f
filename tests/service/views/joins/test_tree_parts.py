"""EXISTS, NOT EXISTS and LEFT JOIN of several relations in a join tree: which are, identities in each state, DuckDB, hostile data."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from livejoin.wire.batch import DELETE, UPSERT
from livejoin.wire.schema import parse_relation
from service.checking.comparison import agrees, table_of
from service.instance import Instance
from service.reading.cursors import open_rows
from service.views.parse import parse_view
from tests.service.definitions import refused, sql
from tests.service.running import batch, check, opened, running
from tests.service.running import rows_of as rows_in
from tests.service.twin import DEFINITIONS, Row, Source, to_batch
from tests.service.views.joins.test_outer_identities import OF_DUCKDB, OVERLAPS, _slots, duck, made, rows_of, x, y

PART = f"x.room = y.room AND {OVERLAPS} AND z.floor = y.floor AND z.tag = 'u'"
GIVEN: dict[str, Any] = {
    "from": {"y": "b", "z": "a"},
    "join": [{"equal": ["x.room", "y.room"]}, {"overlaps": ["x.stay", "y.slot"]}, {"equal": ["z.floor", "y.floor"]}],
    "where": [{"column": "z.tag", "op": "=", "value": "u"}],
}
ALL = ["x.id as i", "y.nr as n", "y.site as s", "z.id as j"]
LEFT = {"from": {"x": "a"}, "left": [GIVEN], "select": ALL}
OF_LEFT = f"SELECT x.id, y.nr, y.site, z.id FROM a x LEFT JOIN (b y JOIN a z ON z.floor = y.floor) ON {PART}"
VIEWS = {
    "inner": f"SELECT x.id AS i, y.nr AS n, y.site AS s, z.id AS j FROM a x, b y, a z WHERE {PART}",
    "semi": f"SELECT x.id AS i FROM a x WHERE EXISTS (SELECT 1 FROM b y, a z WHERE {PART})",
    "anti": f"SELECT x.id AS i FROM a x WHERE NOT EXISTS (SELECT 1 FROM b y, a z WHERE {PART})",
    "keys": f"SELECT DISTINCT x.id AS i FROM a x, b y, a z WHERE {PART}",
    "chain": "SELECT x.id AS i, y.nr AS n, z.id AS j FROM a x LEFT JOIN b y ON x.room = y.room LEFT JOIN a z ON z.floor = y.floor",
    "several": f"SELECT x.id AS i, w.nr AS n, y.nr AS m FROM a x JOIN b w ON x.floor = w.floor LEFT JOIN b y ON x.room = y.room AND "
    f"{OVERLAPS} WHERE NOT EXISTS (SELECT 1 FROM a v, b u WHERE v.room = w.room AND v.id = u.nr) AND w.nr IN (SELECT t.id FROM a t)",
    "grouped": "SELECT x.tag AS t, COUNT(*) AS n, COUNT(z.id) AS m FROM a x LEFT JOIN b y ON x.room = y.room LEFT JOIN a z ON "
    "z.floor = y.floor GROUP BY x.tag",
}


def hold(engine: Instance) -> None:
    found = {name: rows_of(engine, name) for name in ("inner", "left", "semi", "anti", "keys")}
    assert found["left"] == found["inner"] + Counter({(i, None, None, None): count for (i,), count in found["anti"].items()})
    everything = engine.relations["a"].table.take(["id"], _slots(engine, "a")).to_pylist()
    assert found["semi"] + found["anti"] == Counter((row["id"],) for row in everything)
    assert set(found["semi"]) == {(i,) for i, *_ in found["inner"]} and found["keys"] == found["semi"]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 20))])
def test_identities_and_duckdb(tmp_path: Path, seed: int) -> None:
    engine, source = made(tmp_path, VIEWS), Source(seed, 30)
    assert engine.put_view("left", LEFT, wait=60)[1] == "created"
    for name, view in engine.views.items():
        plan = view.view.plan.core or view.view.plan
        assert plan.algorithm == "join-tree" and plan.shape == "join_tree" and plan.guarantee == "delay", name
    known: dict[str, dict[tuple[Any, ...], Row]] = {"a": {}, "b": {}}
    for step in range(12):
        changes = [change for change in source.changes((1, 40)[step % 2], known) if change[1] in (UPSERT, DELETE)]
        if changes:
            engine.apply(to_batch(changes))
        hold(engine)
    db = duck(engine)
    for name, text in {**VIEWS, "left": OF_LEFT}.items():
        assert Counter(db.sql(text.replace(OVERLAPS, OF_DUCKDB)).fetchall()) == rows_of(engine, name), name
    tables = {name: table_of(engine, name) for name in engine.relations}
    assert all(agrees(engine, name, tables, print) for name in engine.views)
    check(engine)
    engine.close()
    engine = opened(tmp_path)
    hold(engine)
    check(engine)
    engine.close()


def test_a_part_that_comes_and_goes_flips_all_rows_of_its_key(tmp_path: Path) -> None:
    """The rows of b are there all the while, and their partner in c comes and goes. As one goes and another comes nothing is told."""
    count = 20_000
    engine = running(tmp_path, {})
    texts = {
        "semi": "SELECT a.id AS i FROM a WHERE EXISTS (SELECT 1 FROM b, a c WHERE b.tag = a.tag AND c.id = b.s)",
        "anti": "SELECT a.id AS i FROM a WHERE NOT EXISTS (SELECT 1 FROM b, a c WHERE b.tag = a.tag AND c.id = b.s)",
    }
    engine.apply(batch(("upsert", "a", rows_in(10, count, tag="many")), ("upsert", "b", rows_in(0, 3, start=1, tag="many"))))
    engine.apply(batch(("upsert", "b", rows_in(3, 1, start=2, tag="many"))))
    for name, text in texts.items():
        assert engine.put_view(name, {"sql": text}, wait=60)[1] == "created", engine.views[name].problem

    def matched() -> int:
        semi, anti = (sum(rows_of(engine, name).values()) for name in texts)
        assert semi + anti == engine.relations["a"].table.rows
        return semi

    assert matched() == 0
    engine.apply(batch(("upsert", "a", rows_in(1, 1))))
    assert matched() == count
    flips = engine.views["semi"].join.flips
    engine.apply(batch(("upsert", "a", rows_in(2, 1))))
    assert matched() == count
    engine.apply(batch(("delete", "a", rows_in(1, 1))))
    assert matched() == count and engine.views["semi"].join.flips == flips, "another partner turns no row"
    feed = engine.views["semi"].feed
    assert feed is not None
    emitted = feed.emitted
    engine.apply(batch(("delete", "a", rows_in(2, 1)), ("upsert", "b", rows_in(5, 1, start=10, tag="many"))))
    assert matched() == count and feed.emitted == emitted
    engine.apply(batch(("delete", "b", rows_in(5, 1))))
    assert matched() == 0
    check(engine)
    engine.close()


def test_nulls_have_no_partner_and_stay(tmp_path: Path) -> None:
    """A row that has a null in a compared column is not live along that edge alone, and becomes another when it can have partners."""
    engine = made(tmp_path, VIEWS)
    assert engine.put_view("left", LEFT, wait=60)[1] == "created"
    engine.apply(to_batch([("a", UPSERT, row) for row in (x(1, floor=None), x(2, room=None), x(3, floor=7), x(4))]))
    engine.apply(to_batch([("b", UPSERT, y(1)), ("b", UPSERT, y(2, floor=None)), ("b", UPSERT, y(3, room=None))]))
    assert set(rows_of(engine, "anti")) == {(2,)} and set(rows_of(engine, "semi")) == {(1,), (3,), (4,)}
    hold(engine)
    engine.apply(to_batch([("a", UPSERT, x(2)), ("b", UPSERT, y(1, floor=None))]))
    assert set(rows_of(engine, "anti")) == {(1,), (2,), (3,), (4,)} and not rows_of(engine, "semi")
    hold(engine)
    check(engine)
    engine.close()


@pytest.mark.parametrize(
    ("text", "cls"),
    [
        ("SELECT x.id FROM a x WHERE NOT EXISTS (SELECT 1 FROM b y, a z WHERE y.room = x.room AND z.id = y.nr)",
            "anti join, 3 relations, path, keyed"),
        ("SELECT x.id FROM a x WHERE EXISTS (SELECT 1 FROM b y, a z WHERE y.room = x.room AND z.room = x.room)",
            "semi join, 3 relations, path, keyed"),
        ("SELECT x.id FROM a x JOIN b w ON x.room = w.room LEFT JOIN a y ON y.starts < w.ends",
            "left outer join, 1-D, 3 relations, path, keyed"),
        ("SELECT x.id FROM a x JOIN b w ON x.room = w.room WHERE NOT EXISTS (SELECT 1 FROM a y WHERE y.id = w.nr) AND EXISTS "
            "(SELECT 1 FROM b v WHERE v.nr = x.id)", "semi join and anti join, 4 relations, path, keyed"),
        # by two edges on one alias, on several dimensions, in a cycle, by a condition that no index answers
        ("SELECT x.id FROM a x WHERE NOT EXISTS (SELECT 1 FROM b y, a z WHERE y.room = x.room AND z.floor = x.floor AND z.id = y.nr)", ""),
        ("SELECT x.id FROM a x WHERE EXISTS (SELECT 1 FROM b y, a z WHERE y.starts < x.ends AND x.starts < y.ends AND z.id = y.nr)", ""),
        ("SELECT x.id FROM a x JOIN b w ON x.room = w.room WHERE EXISTS (SELECT 1 FROM a y WHERE y.id = w.nr AND y.room <> w.room)", ""),
    ],
)  # fmt: skip
def test_which_are_kept_so(text: str, cls: str) -> None:
    plan = parse_view("v", {"sql": text}, DEFINITIONS).plan
    assert (plan.cls if plan.shape == "join_tree" else "") == cls, plan
    if cls:
        assert plan.guarantee == "delay" and plan.bounds["delay"] == "O(log n)"
        assert "visits the partners" in str(plan.notes) and "a null matches nothing" in str(plan.notes)


def test_that_of_the_counts_is_there_by_its_name() -> None:
    text = "SELECT b.id FROM bookings b WHERE NOT EXISTS (SELECT 1 FROM maintenance m, shifts s WHERE m.room = b.room AND s.nr = m.id)"
    assert sql(text).plan.shape == "join_tree" and sql(text, algorithm="nested-loop").plan.shape == "outer"


def test_what_is_refused_says_why() -> None:
    tree = {"sql": "SELECT x.id FROM a x WHERE NOT EXISTS (SELECT 1 FROM b y, a z WHERE y.room = x.room AND z.id = y.nr)"}
    emitted = refused(tree | {"guarantee": "strict"}, DEFINITIONS).detail
    why = 'the guarantee "strict" cannot be given, only "delay": a change visits the partners of its row'
    assert emitted.startswith(why) and "null" not in emitted
    cycle = {"sql": tree["sql"][:-1] + " AND z.floor = x.floor)", "algorithm": "join-tree"}
    emitted = refused(cycle, DEFINITIONS).detail
    assert "EXISTS, NOT EXISTS and LEFT JOIN that are connected to one alias by one edge" in emitted and emitted.endswith('or "auto"')


@pytest.mark.parametrize(("bounds", "before"), [("[)", "<"), ("[]", "<="), ("(]", "<")])
def test_a_null_end_is_unbounded_in_overlaps_alone(tmp_path: Path, bounds: str, before: str) -> None:
    """The same interval in both readings, in one view: only the part that compares the ends does without the rows with a null."""
    columns = [{"name": name, "type": "int64", "nullable": name == "s"} for name in ("id", "s", "e")]
    both = {"columns": columns, "key": ["id"], "intervals": {"i": {"start": "s", "end": "e", "bounds": bounds}}}
    engine = opened(tmp_path)
    definitions = {name: parse_relation(both) for name in ("ua", "ub")}
    for name, definition in definitions.items():
        engine.put_relation(name, definition)
    rows = [{"id": 1, "s": None, "e": 5}, {"id": 2, "s": 1, "e": 3}, {"id": 3, "s": 10, "e": 12}]
    engine.apply(to_batch([("ua", UPSERT, row) for row in rows], definitions))
    compared, overlap = f"a.s {before} p.e AND p.s {before} a.e", "overlaps(a.i, p.i)"
    absent = "SELECT a.id FROM ua a WHERE NOT EXISTS (SELECT 1 FROM ua p WHERE {}) AND NOT EXISTS (SELECT 1 FROM ub q WHERE q.e = a.e)"
    texts = {
        "compared": (absent.format(compared), [(1,)]),
        "overlap": (absent.format(overlap), []),
        "both": (f"SELECT a.id FROM ua a WHERE EXISTS (SELECT 1 FROM ua p WHERE {overlap}) AND NOT EXISTS (SELECT 1 FROM ua p WHERE "
            f"{compared})", [(1,)]),
    }  # fmt: skip
    for name, (text, expected) in texts.items():
        assert engine.put_view(name, {"sql": text}, wait=60)[1] == "created"
        assert engine.views[name].view.plan.algorithm == "join-tree"
        assert rows_of(engine, name) == Counter(expected), name
        assert window_of(engine, name, "1", "2") == Counter(row for row in expected if row == (1,)), "the window takes a null as unbounded"
    check(engine)
    engine.close()


def window_of(engine: Instance, name: str, low: str, high: str) -> Counter[tuple[Any, ...]]:
    reader = open_rows(engine.readers, name, window={"": (low, high)})
    return Counter(tuple(row.values()) for part in iter(partial(reader.read, 1000), None) for row in part.to_pylist())
