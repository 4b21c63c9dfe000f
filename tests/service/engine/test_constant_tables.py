"""VALUES and generate_series in FROM: views that read them are compared with DuckDB after each batch, as is what followers were sent,
through starts and kills. Nothing but the definition has their rows."""

from __future__ import annotations

import datetime
import random
import signal
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from livejoin.wire.batch import DELETE, UPSERT, Batch, Changes, RowBlock
from livejoin.wire.schema import RelationPatch, parse_relation
from service.checking import comparison
from service.checking.comparison import agrees
from service.engine.headless import parse_for_cells
from service.errors import Problem
from service.instance import Instance
from service.tables.estimates import estimates_of
from service.views.parse import parse_view
from tests.forked import finished
from tests.relations import declared
from tests.service.duck import connected
from tests.service.engine.test_stored_views import check_tables
from tests.service.running import check, keep_house, kill, opened, parts
from tests.service.twin import values
from tests.service.views.test_random_sql import Added
from tests.service.views.test_random_sql import rows_of as all_rows_of

RELATIONS = {
    "rooms": parse_relation(declared("id:int64, name:string?")),
    "bookings": parse_relation(declared("id:int64, room:int64?, starts:date, ends:date, status:string", stay="starts ends")),
}
FIRST = datetime.date(2026, 1, 1)
DAYS = "generate_series(date '2026-01-01', date '2026-01-20', interval '1 day') AS d(moment)"
STAYS = "b.starts <= d.day AND d.day < b.ends"
LABELS = "(VALUES ('new', 'Option'), ('held', 'Booked')) AS t(status, label)"
TEXTS = {
    "occupancy": f"WITH d AS (SELECT moment::date AS day FROM {DAYS}) "
    f"SELECT d.day, count(b.id) AS n, count(DISTINCT b.room) AS rooms FROM d LEFT JOIN bookings b ON {STAYS} GROUP BY d.day",
    "by_room": f"SELECT d.day, r.id, count(b.id) AS n FROM (SELECT moment::date AS day FROM {DAYS}) d CROSS JOIN rooms r "
    f"LEFT JOIN bookings b ON b.room = r.id AND {STAYS} GROUP BY d.day, r.id",
    "listed": f"WITH d AS (SELECT moment::date AS day FROM {DAYS}) "
    f"SELECT d.day, r.id, b.id AS booking FROM d CROSS JOIN rooms r LEFT JOIN bookings b ON b.room = r.id AND b.starts = d.day",
    "idle": f"WITH d AS (SELECT moment::date AS day FROM {DAYS}) "
    f"SELECT d.day FROM d WHERE NOT EXISTS (SELECT 1 FROM bookings b WHERE {STAYS})",
    "labelled": f"SELECT b.id, t.label FROM bookings b JOIN {LABELS} ON t.status = b.status",
    "labelled_or_not": f"SELECT b.id, t.label FROM bookings b LEFT JOIN {LABELS} USING (status)",
    "unused_labels": f"SELECT t.label, b.id FROM {LABELS} LEFT JOIN bookings b ON t.status = b.status",
    "by_label": f"SELECT t.label, count(*) AS n FROM bookings b JOIN {LABELS} ON t.status = b.status GROUP BY t.label",
    "bands": "SELECT h.low, count(b.id) AS n FROM (VALUES (0, 5), (5, NULL), (3, 4)) AS h(low, high) "
    "LEFT JOIN bookings b ON b.id >= h.low AND b.id < h.high GROUP BY h.low",
    "twice": "WITH t(room, price) AS (VALUES (1, 1.5), (1, 1.5), (2, NULL)) SELECT * FROM t JOIN bookings b ON b.room = t.room",
    "rows_twice": "SELECT r.id, x.n FROM rooms r "
    "JOIN (SELECT a, count(*) AS n FROM (VALUES (1), (1), (2)) AS t(a) GROUP BY a) x ON x.a = r.id",
    "numbers": "SELECT r.id, g.n FROM rooms r CROSS JOIN generate_series(10, 1, -3) AS g(n)",
    "no_numbers": "SELECT r.id, g.n FROM rooms r LEFT JOIN generate_series(3, 1) AS g(n) ON g.n = r.id",
    "either": "SELECT id FROM rooms UNION VALUES (1), (77)",
    "both": "SELECT id FROM rooms UNION ALL SELECT g.n FROM generate_series(1, 3) AS g(n)",
    "others": "SELECT id FROM rooms EXCEPT VALUES (1), (77)",
    "some": "SELECT id FROM rooms WHERE id IN (SELECT g.n FROM generate_series(2, 9, 2) AS g(n))",
    "above": "SELECT o.day, o.n, h.word FROM occupancy o JOIN (VALUES (0, 'none'), (1, 'one')) AS h(n, word) ON h.n = o.n",
}


def batch(rng: random.Random, relation: str) -> Batch:
    """Upsert and delete a few rows."""
    definition, rows, ops = RELATIONS[relation], list[dict[str, Any]](), list[int]()
    for id_ in rng.sample(range(12), rng.randrange(1, 6)):
        start = FIRST + datetime.timedelta(rng.randrange(-2, 20))
        one = {"id": id_, "name": rng.choice(["x", None])}
        if relation == "bookings":
            one = {"id": id_, "room": rng.choice([None, 1, 2, 3]), "starts": start, "ends": start + datetime.timedelta(rng.randrange(1, 5))}
            one["status"] = rng.choice(["new", "held", "gone"])
        ops.append(DELETE if rng.random() < 0.3 else UPSERT)
        rows.append(one if ops[-1] == UPSERT else {"id": id_})
    block = RowBlock(pa.RecordBatch.from_pylist(rows, schema=definition.arrow_schema()))
    changes = Changes(relation, definition, np.array(ops, np.uint8), block, np.arange(len(rows)))
    return Batch([changes], len(rows), 0, [], 0)


def filled(folder: Path) -> Instance:
    engine = opened(folder)
    for name, definition in RELATIONS.items():
        engine.put_relation(name, definition)
    for name, text in TEXTS.items():
        engine.put_view(name, {"sql": text}, wait=60)
    return engine


def compare(engine: Instance) -> None:
    duck = connected()
    for name in RELATIONS:
        duck.register(name, comparison.table_of(engine, name))
    duck.execute(f"CREATE OR REPLACE TEMP VIEW occupancy AS {TEXTS['occupancy']}")
    for name, text in TEXTS.items():
        assert engine.views[name].state == "live", (name, engine.views[name].problem)
        ours = Counter(values(row) for row in all_rows_of(engine, name))
        theirs = Counter(values(dict(enumerate(row))) for row in duck.execute(text).fetchall())
        assert ours == theirs, name
    duck.close()


@pytest.mark.parametrize("seed", range(2))
def test_duckdb_confirms(tmp_path: Path, seed: int) -> None:
    rng, engine = random.Random(seed), filled(tmp_path)
    added = {name: Added(engine, name) for name in TEXTS}
    assert engine.relations.keys() == RELATIONS.keys()
    for step in range(8):
        for _ in range(rng.randrange(1, 4)):
            engine.apply(batch(rng, rng.choice(["rooms", "bookings", "bookings"])))
        if step % 3 == 2:
            tokens = {name: one.subscription.idle_progress().token for name, one in added.items()}
            (kill if rng.random() < 0.5 else Instance.close)(engine)
            engine = opened(tmp_path)
            for _ in engine.views:
                engine.apply(batch(rng, "bookings"))
            for name, one in added.items():
                engine.put_view(name, {"sql": TEXTS[name]}, wait=60)
                one.subscribe(engine, tokens[name])
        compare(engine)
        check_tables(engine)
        for name, one in added.items():
            one.catch_up()
            assert Counter(one.rows.values()) == Counter(map(values, all_rows_of(engine, name))), name
        keep_house(engine)
    check(engine)
    said = list[str]()
    assert all(agrees(engine, name, {}, said.append) for name in TEXTS), said
    for name in reversed(TEXTS):
        engine.drop_view(name)
    assert not parts(engine).state.stored
    engine.close()


def work(folder: Path) -> None:
    """The child: applies batch after batch, and says so."""
    engine, rng = filled(folder) if not (folder / "written").exists() else opened(folder), random.Random(5)
    for name, text in TEXTS.items():
        engine.put_view(name, {"sql": text}, wait=60)
    (folder / "written").touch()
    for step in range(10):
        engine.apply(batch(rng, "rooms" if step < 2 else "bookings"))
        print(engine.published.number, flush=True)
        if step == 5:
            engine.snapshots.write()
    kill(engine)


@pytest.mark.parametrize("step", ["before-publish", "in-snapshot", "in-build", "in-replay"])
def test_killed_at(tmp_path: Path, step: str) -> None:
    if step == "in-replay":
        work(tmp_path)
    status, emitted = finished(partial(work, tmp_path), {"LIVEJOIN_FAILPOINT": f"{step}:{4 if step == 'before-publish' else 1}"})
    assert status == -signal.SIGKILL, emitted
    engine = opened(tmp_path)
    for name, text in TEXTS.items():
        engine.put_view(name, {"sql": text}, wait=60)
    assert engine.published.number >= int((emitted.split() or ["0"])[-1])
    compare(engine)
    engine.close()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Instance]:
    made = filled(tmp_path)
    made.apply(batch(random.Random(1), "rooms"))
    yield made
    made.close()


def test_equal_tables_are_the_same_view(engine: Instance) -> None:
    text = TEXTS["labelled"]
    assert engine.put_view("labelled", {"sql": text.replace("VALUES", "  VALUES")}, wait=60)[1] == "same"
    with pytest.raises(Problem, match="another definition"):
        engine.put_view("labelled", {"sql": text.replace("Option", "Offer")}, wait=60)


def test_only_relations_are_in_use(engine: Instance) -> None:
    view = engine.views["by_room"]
    assert view.view.query.named == ("bookings", "rooms") and [*view.costs] == [*view.view.stored, "bookings"]
    assert [*engine.views["labelled"].costs] == ["bookings"]
    with pytest.raises(Problem, match=r"the relation bookings is used by .* by_room"):
        engine.drop_relation("bookings")
    engine.patch_relation("rooms", RelationPatch.model_validate({"add_columns": [{"name": "floor", "type": "int64", "nullable": True}]}))
    compare(engine)


def test_estimates_need_relations(engine: Instance) -> None:
    """A view of relations alone is planned by their rows, any other without."""
    version = engine.published.number
    alone, beside = engine.views["both"].view.query.united[0], engine.views["numbers"].view.query
    assert estimates_of(alone, engine.relations, version) is not None
    assert estimates_of(beside, engine.relations, version) is None


def test_the_plan_names_their_rows(engine: Instance) -> None:
    assert "VALUES and generate_series: 2 rows, which are part of the definition" in engine.views["labelled"].view.plan.notes


def test_cells_have_none() -> None:
    with pytest.raises(Problem, match="VALUES or generate_series on a cluster is not supported"):
        parse_for_cells("v", {"sql": TEXTS["labelled"]}, RELATIONS)


def test_as_many_rows_as_are_allowed(engine: Instance) -> None:
    engine.put_view("v", {"sql": "SELECT r.id, g.n FROM rooms r JOIN generate_series(1, 10000) AS g(n) ON g.n = r.id"}, wait=60)
    assert len(all_rows_of(engine, "v")) == sum(row["id"] > 0 for row in comparison.table_of(engine, "rooms").to_pylist()) > 0
    text = "SELECT r.id, t.title FROM rooms r JOIN (VALUES {}) AS t(id, title) ON t.id = r.id"
    rows = [f"({n}, 'room {n}')" for n in range(10_001)]
    (table,) = parse_view("v", {"sql": text.format(", ".join(rows[1:]))}, RELATIONS).constants.values()
    assert len(table.rows) == 10_000 and table.rows[7] == (8, "room 8") and table.definition.key == ["id"]
    with pytest.raises(Problem, match="a table of more than 10,000 constant rows is not supported: load them into a relation"):
        parse_view("v", {"sql": text.format(", ".join(rows))}, RELATIONS)
