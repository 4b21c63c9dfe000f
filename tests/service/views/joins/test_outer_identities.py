"""Identities between views with parts in each state, DuckDB as a second oracle, nulls, hostile data, brute force."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from livejoin.wire.batch import DELETE, UPSERT
from service.checking.comparison import agrees, table_of
from service.instance import Instance
from service.reading.cursors import open_rows
from tests.service.engine.test_engine import read_all
from tests.service.running import batch, check, opened, running
from tests.service.running import rows_of as rows_in
from tests.service.twin import DEFINITIONS, Row, Source, to_batch

MEETS = "x.room = y.room AND x.starts < y.ends AND y.starts < x.ends AND x.floor <= y.floor"
OVERLAPS = "overlaps(x.stay, y.slot)"
OF_DUCKDB = "x.starts <= coalesce(y.ends, 10^15) AND coalesce(y.starts, -10^15) < coalesce(x.ends, 10^15)"
ITSELF = "x.starts < z.ends AND z.starts < x.ends"
VIEWS = {
    "inner": f"SELECT x.id AS i, y.nr AS n, y.site AS s FROM a x JOIN b y ON {MEETS}",
    "left": f"SELECT x.id AS i, y.nr AS n, y.site AS s FROM a x LEFT JOIN b y ON {MEETS}",
    "right": f"SELECT x.id AS i, y.nr AS n, y.site AS s FROM a x RIGHT JOIN b y ON {MEETS}",
    "full": f"SELECT x.id AS i, y.nr AS n, y.site AS s FROM a x FULL JOIN b y ON {MEETS}",
    "semi": f"SELECT x.id AS i FROM a x WHERE EXISTS (SELECT 1 FROM b y WHERE {MEETS})",
    "anti": f"SELECT x.id AS i FROM a x WHERE NOT EXISTS (SELECT 1 FROM b y WHERE {MEETS})",
    "other": f"SELECT y.nr AS n, y.site AS s FROM b y WHERE NOT EXISTS (SELECT 1 FROM a x WHERE {MEETS})",
    "three": f"SELECT x.id AS i, y.nr AS n, z.id AS j FROM a x LEFT JOIN b y ON {MEETS} LEFT JOIN a z ON z.floor = y.floor AND z.tag = 'u'",
    "both": f"SELECT x.id AS i, y.nr AS n, z.id AS j FROM a x LEFT JOIN b y ON {MEETS} LEFT JOIN a z ON z.id < x.id AND z.room = x.room",
    "kept": f"SELECT x.id AS i, y.nr AS n FROM a x JOIN b y ON {MEETS} WHERE x.floor IN (SELECT z.floor FROM a z WHERE z.tag = 'v')",
    "self": f"SELECT x.id AS i, z.id AS j FROM a x LEFT JOIN a z ON x.room = z.room AND {ITSELF} AND x.id <> z.id",
    "less": f"SELECT x.id AS i, z.id AS j FROM a x FULL JOIN a z ON x.room = z.room AND {ITSELF} AND x.id < z.id",
    "clash": f"SELECT x.id AS i FROM a x WHERE NOT EXISTS (SELECT 1 FROM a z WHERE {ITSELF} AND x.id <> z.id)",
    "named": "SELECT x.id AS i FROM a x WHERE NOT EXISTS (SELECT 1 FROM b y JOIN a z ON z.id = y.nr WHERE y.room = x.room)",
}
OF_TWO = {
    name: text.replace(MEETS, f"x.room = y.room AND {OVERLAPS}")
    for name, text in VIEWS.items() if name not in ("three", "both", "kept", "less", "named")
}  # fmt: skip
OF_TWO["others"] = f"SELECT x.id AS i, z.id AS j FROM a x FULL JOIN a z ON x.room = z.room AND {ITSELF} AND x.id <> z.id AND x.tag = z.tag"
OF_TWO["clashing"] = OF_TWO["clash"].replace("NOT EXISTS", "EXISTS")
BY_INTERVALS = ("self", "clash")  # by a match tree in the first set too
KEYED = {
    name: text.replace(MEETS, "x.room = y.room AND x.floor = y.floor")
    for name, text in VIEWS.items() if name not in ("three", "both", "kept", "less", "named", *BY_INTERVALS)
}  # fmt: skip
KEYED["self"] = "SELECT x.id AS i, z.id AS j FROM a x FULL JOIN a z ON x.floor = z.floor AND z.tag = 'u'"
KEYED["keys"] = "SELECT DISTINCT x.id AS i FROM a x JOIN b y ON x.room = y.room AND x.floor = y.floor"
SETS = {"by counts": VIEWS, "by a match tree": OF_TWO, "by keys": KEYED}
UNTOLD = "by a match tree, untold"  # LEFT and FULL JOIN count partners by the pairs that are told, or keep an event tree


def made(folder: Path, views: dict[str, str] = VIEWS, algorithm: str = "auto", **more: Any) -> Instance:
    engine = opened(folder)
    for name, definition in DEFINITIONS.items():
        engine.put_relation(name, definition)
    for name, text in views.items():
        assert engine.put_view(name, {"sql": text, "algorithm": algorithm, **more}, wait=60)[1] == "created", engine.views[name].problem
    return engine


def rows_of(engine: Instance, name: str) -> Counter[tuple[Any, ...]]:
    return read_all(open_rows(engine.readers, name))


def hold(engine: Instance) -> None:
    """What is true of these views in each state."""
    found = {name: rows_of(engine, name) for name in ("inner", "left", "right", "full", "semi", "anti", "other")}
    alone = Counter({(i, None, None): count for (i,), count in found["anti"].items()})
    others = Counter({(None, n, s): count for (n, s), count in found["other"].items()})
    assert found["left"] == found["inner"] + alone
    assert found["right"] == found["inner"] + others
    assert found["full"] == found["inner"] + alone + others
    everything = Counter((row["id"],) for row in engine.relations["a"].table.take(["id"], _slots(engine, "a")).to_pylist())
    assert found["semi"] + found["anti"] == everything
    assert set(found["semi"]) == {(i,) for i, _, _ in found["inner"]}


def _slots(engine: Instance, name: str) -> Any:
    return engine.relations[name].table.scan(engine.published.number, 0, 1 << 20)[0]


def duck(engine: Instance) -> duckdb.DuckDBPyConnection:
    db = duckdb.connect()
    for name in "ab":
        table = pa.Table.from_batches([table_of(engine, name)])
        for at, field in enumerate(table.schema):
            if pa.types.is_timestamp(field.type):
                table = table.set_column(at, field.name, table.column(at).cast(pa.int64()))
        db.register(f"given_{name}", table)
        db.execute(f"CREATE TABLE {name} AS SELECT * FROM given_{name}")
    return db


@pytest.mark.parametrize("views", [*SETS, UNTOLD])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 20))])
def test_identities_and_duckdb(tmp_path: Path, seed: int, views: str) -> None:
    source, texts = Source(seed, 40), SETS[views.removesuffix(", untold")]
    engine = made(tmp_path, texts, **({"changes": False} if views == UNTOLD else {}))
    for name in texts:
        matched = name in BY_INTERVALS if texts is VIEWS else name != "inner"
        assert (engine.views[name].view.plan.algorithm == "match-tree") == matched, name
    known: dict[str, dict[tuple[Any, ...], Row]] = {"a": {}, "b": {}}
    for step in range(14):
        changes = [change for change in source.changes((1, 60)[step % 2], known) if change[1] in (UPSERT, DELETE)]
        if changes:
            engine.apply(to_batch(changes))
        hold(engine)
        if texts is KEYED:
            assert rows_of(engine, "keys") == rows_of(engine, "semi")
    db = duck(engine)
    for name, text in texts.items():
        assert Counter(db.sql(text.replace(OVERLAPS, OF_DUCKDB)).fetchall()) == rows_of(engine, name), name
    tables = {name: table_of(engine, name) for name in engine.relations}
    for name in texts:
        assert agrees(engine, name, tables, print), name
    check(engine)
    engine.close()


KINDS = ("LEFT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN", "EXISTS", "NOT EXISTS", "RIGHT JOIN")
CONDITIONS = ("x.floor = y.floor", "x.room = y.room", "x.starts < y.ends AND y.starts < x.ends", "x.floor < y.floor", "x.id = y.nr")


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 60))])
def test_statements_at_random_as_in_duckdb(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    texts = {}
    for number in range(12):
        kind, condition = rng.choice(KINDS), " AND ".join(rng.sample(CONDITIONS, rng.choice((1, 2))))
        condition += rng.choice(("", "", " AND y.note = 'n'"))
        if kind == "RIGHT JOIN":
            condition = condition.replace(" AND y.note = 'n'", " AND x.tag = 'u'")
        where = rng.choice(("", "", "x.tag = 'u'", "x.floor IS NULL")) if kind not in ("FULL JOIN", "RIGHT JOIN") else ""
        if "EXISTS" in kind:
            text = f"SELECT x.id AS i, x.tag AS t FROM a x WHERE {kind} (SELECT 1 FROM b y WHERE {condition})" + (where and f" AND {where}")
        else:
            shown = "x.id AS i, x.tag AS t" + ("" if kind in ("SEMI JOIN", "ANTI JOIN") else ", y.nr AS n, y.note AS o")
            text = f"SELECT {shown} FROM a x {kind} b y ON {condition}" + (where and f" WHERE {where}")
        texts[f"v{number}"] = text
    engine, source = made(tmp_path, texts), Source(seed, 25)
    for _ in range(4):
        changes = [change for change in source.changes(40, {"a": {}, "b": {}}) if change[1] in (UPSERT, DELETE)]
        engine.apply(to_batch(changes))
        db = duck(engine)
        for name, text in texts.items():
            assert Counter(db.sql(text).fetchall()) == rows_of(engine, name), text
    check(engine)
    engine.close()


def x(i: int, **more: Any) -> Row:
    return {"id": i, "room": "A", "floor": 1, "starts": 10 * i, "ends": 10 * i + 5, "tag": "u", "weight": None} | more


def y(i: int, **more: Any) -> Row:
    return {"nr": i, "site": "N", "room": "A", "floor": 1, "starts": 0, "ends": 10**6, "note": None} | more


@pytest.mark.parametrize("algorithm", ["match-tree", "interval-tree", "join-tree"])
def test_one_interval_over_all_rows_on_and_off(tmp_path: Path, algorithm: str) -> None:
    """No row flips, ten do, all do; in one batch with a replacement nothing does."""
    part = "EXISTS (SELECT 1 FROM b y WHERE overlaps(x.stay, y.slot))"
    views = {name: f"SELECT x.id AS i FROM a x WHERE {sign} {part}" for name, sign in (("exists", ""), ("not", "NOT"))}
    engine = made(tmp_path, views, algorithm)
    rows = [("a", UPSERT, x(i)) for i in range(500)]
    own = [("b", UPSERT, y(i + 10, starts=10 * i, ends=10 * i + 1)) for i in range(490)]
    engine.apply(to_batch([*rows, *own]))
    matched = lambda: sum(rows_of(engine, "exists").values())  # noqa: E731
    assert matched() == 490
    engine.apply(to_batch([("b", UPSERT, y(1))]))
    assert matched() == 500 and not rows_of(engine, "not")
    engine.apply(to_batch([("b", DELETE, {"nr": 1, "site": "N"}), ("b", UPSERT, y(2))]))
    assert matched() == 500, "as one goes another comes"
    engine.apply(to_batch([("b", DELETE, {"nr": 2, "site": "N"})]))
    assert matched() == 490
    engine.apply(to_batch([("b", DELETE, {"nr": i + 10, "site": "N"}) for i in range(490)]))
    assert matched() == 0 and sum(rows_of(engine, "not").values()) == 500
    check(engine)
    engine.close()


def test_a_key_with_many_rows_whose_only_partner_comes_and_goes(tmp_path: Path) -> None:
    """They flip together; those of other keys are not touched, nor is any when the key has another partner. A restart has the same."""
    count, part = 20_000, "(SELECT 1 FROM b WHERE b.tag = a.tag)"
    engine = running(tmp_path, {})
    engine.apply(batch(("upsert", "a", rows_in(0, count, tag="many")), ("upsert", "b", rows_in(0, 1, tag="few"))))
    engine.apply(batch(("upsert", "a", rows_in(count, 10, tag="few"))))
    texts = {
        "semi": f"SELECT a.id AS i FROM a WHERE EXISTS {part}", "anti": f"SELECT a.id AS i FROM a WHERE NOT EXISTS {part}",
        "left": "SELECT a.id AS i, b.id AS j FROM a LEFT JOIN b ON b.tag = a.tag",
    }  # fmt: skip
    for name, text in texts.items():
        assert engine.put_view(name, {"sql": text, "guarantee": "strict"}, wait=60)[1] == "created", engine.views[name].problem

    def states(matched: int, rows: int) -> None:
        found = {name: sum(rows_of(engine, name).values()) for name in texts}
        assert found == {"semi": matched, "anti": count + 10 - matched, "left": rows}

    states(10, count + 10)
    engine.apply(batch(("upsert", "b", rows_in(1, 1, tag="many"))))
    states(count + 10, count + 10)
    flipped = engine.views["anti"].join.flips
    engine.apply(batch(("upsert", "b", rows_in(2, 1, tag="many"))))
    engine.apply(batch(("delete", "b", rows_in(1, 1)), ("upsert", "a", rows_in(count + 10, 1, tag="few"))))
    assert engine.views["anti"].join.flips == flipped == count, "another partner turns no row"
    engine.apply(batch(("delete", "b", rows_in(2, 1))))
    engine.apply(batch(("delete", "a", rows_in(count + 10, 1))))
    states(10, count + 10)
    check(engine)
    engine.close()
    engine = opened(tmp_path)
    states(10, count + 10)
    engine.apply(batch(("upsert", "b", rows_in(3, 1, tag="many"))))
    states(count + 10, count + 10)
    check(engine)
    engine.close()


def test_nulls_have_no_partner_and_stay(tmp_path: Path) -> None:
    """A condition implies that its columns are not null: of partners, not of the preserved rows."""
    engine = made(tmp_path)
    engine.apply(to_batch([("a", UPSERT, row) for row in (x(1, floor=None), x(2, room=None), x(3, ends=None), x(4))]))
    engine.apply(to_batch([("b", UPSERT, y(1)), ("b", UPSERT, y(2, floor=None)), ("b", UPSERT, y(3, ends=None))]))
    assert set(rows_of(engine, "anti")) == {(1,), (2,), (3,)}
    assert set(rows_of(engine, "full")) == {(1, None, None), (2, None, None), (3, None, None), (4, 1, "N"), (None, 2, "N"), (None, 3, "N")}
    hold(engine)
    engine.close()


def test_nulls_by_a_match_tree(tmp_path: Path) -> None:
    """A row that can have no partner stays, is found by its join key, and becomes another when it can have one."""
    engine = made(tmp_path, OF_TWO)
    engine.apply(to_batch([("a", UPSERT, row) for row in (x(1, floor=None), x(2, room=None), x(3, ends=None), x(4))]))
    engine.apply(to_batch([("b", UPSERT, y(1)), ("b", UPSERT, y(2, room=None)), ("b", UPSERT, y(3, ends=None))]))
    assert set(rows_of(engine, "anti")) == {(2,)} and set(rows_of(engine, "clash")) == {(1,), (2,), (3,), (4,)}
    pairs = {(i, n, "N") for i in (1, 3, 4) for n in (1, 3)}
    assert set(rows_of(engine, "full")) == {*pairs, (2, None, None), (None, 2, "N")}
    for name, alias, room, wanted in (
        ("self", "x", "A", {(1, None), (3, None), (4, None)}), ("full", "x", "A", pairs), ("left", "x", "B", set[Any]()),
    ):  # fmt: skip
        assert set(read_all(open_rows(engine.readers, name, point=(alias, {"room": room})))) == wanted, name
    hold(engine)
    engine.apply(to_batch([("a", UPSERT, x(2)), ("a", UPSERT, x(3, starts=22, ends=23)), ("b", UPSERT, y(2))]))
    assert not rows_of(engine, "anti") and set(rows_of(engine, "clash")) == {(1,), (4,)}
    hold(engine)
    check(engine)
    engine.close()


def test_a_part_that_never_matches(tmp_path: Path) -> None:
    """`never` empties the part, not the view."""
    engine = made(
        tmp_path,
        {
            "left": "SELECT x.id AS i, y.nr AS n FROM a x LEFT JOIN b y ON x.room = y.room AND y.floor = NULL",
            "full": "SELECT x.id AS i, y.nr AS n FROM a x FULL JOIN b y ON x.room = y.room AND FALSE",
            "anti": "SELECT x.id AS i FROM a x WHERE NOT EXISTS (SELECT 1 FROM b y WHERE x.starts < y.ends AND y.floor = NULL)",
            "semi": "SELECT x.id AS i FROM a x WHERE EXISTS (SELECT 1 FROM b y WHERE x.starts < y.ends AND y.floor = NULL)",
            "none": f"SELECT x.id AS i FROM a x WHERE x.floor = NULL AND NOT EXISTS (SELECT 1 FROM b y WHERE {OVERLAPS})",
        },
    )
    engine.apply(to_batch([("a", UPSERT, x(1)), ("b", UPSERT, y(1))]))
    engine.apply(to_batch([("a", UPSERT, x(2))]))
    assert set(rows_of(engine, "left")) == {(1, None), (2, None)} and set(rows_of(engine, "anti")) == {(1,), (2,)}
    assert set(rows_of(engine, "full")) == {(1, None), (2, None), (None, 1)} and not rows_of(engine, "semi") and not rows_of(engine, "none")
    tables = {name: table_of(engine, name) for name in engine.relations}
    assert all(agrees(engine, name, tables, print) for name in engine.views)
    engine.close()


GROUPED = {
    "zeros": f"SELECT x.room AS r, count(y.nr) AS n, count(*) AS a FROM a x LEFT JOIN b y ON {MEETS} GROUP BY x.room",
    "of_part": f"SELECT y.note AS o, count(*) AS n, sum(y.nr) AS t, min(x.id) AS m FROM a x FULL JOIN b y ON {MEETS} GROUP BY y.note",
    "lonely": f"SELECT count(*) AS n FROM a x WHERE NOT EXISTS (SELECT 1 FROM b y WHERE {MEETS})",
    "distinct": f"SELECT DISTINCT x.tag AS t, y.site AS s FROM a x LEFT JOIN b y ON {MEETS}",
}


def test_groups_over_parts_as_in_duckdb(tmp_path: Path) -> None:
    """Occupancy with zeros: a part that is missing counts as null."""
    engine, source = made(tmp_path, GROUPED), Source(5, 30)
    for step in range(8):
        changes = [change for change in source.changes((3, 40)[step % 2], {"a": {}, "b": {}}) if change[1] in (UPSERT, DELETE)]
        engine.apply(to_batch(changes))
        db = duck(engine)
        for name, text in GROUPED.items():
            assert Counter(db.sql(text).fetchall()) == rows_of(engine, name), (step, text)
    tables = {name: table_of(engine, name) for name in engine.relations}
    assert all(agrees(engine, name, tables, print) for name in engine.views)
    check(engine)
    engine.close()
