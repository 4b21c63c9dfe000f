"""Products: their plans, what they count, and parts without rows. (Random ones against the twin: `test_random_views`.)"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from livejoin.wire.batch import DELETE, INSERT
from service.planning.planner import alternatives
from service.reading.cursors import open_rows
from service.views.joins.product_join import ProductJoin
from tests.service.definitions import RELATIONS, refused, sql
from tests.service.engine.test_engine import prepared
from tests.service.twin import Row, to_batch

PAIR = "SELECT a.id FROM bookings a JOIN maintenance b ON overlaps(a.stay, b.slot)"
CYCLE = """SELECT a.id FROM bookings a, maintenance b, maintenance c CROSS JOIN shifts d
    WHERE a.room = b.room AND b.floor = c.floor AND a.id = c.id"""
APART = "SELECT a.id FROM bookings a CROSS JOIN maintenance b CROSS JOIN shifts c WHERE a.room <> b.room"


@pytest.mark.parametrize(
    ("text", "parts", "guarantee", "algorithm"),
    [
        ("SELECT a.id FROM bookings a CROSS JOIN maintenance b", [(0,), (1,)], "strict", "interval-tree"),
        (f"{PAIR} CROSS JOIN shifts c", [(0, 1), (2,)], "strict", "interval-tree"),
        (f"{PAIR} CROSS JOIN shifts c JOIN shifts d ON overlaps(c.span, d.span)", [(0, 1), (2, 3)], "strict", "interval-tree"),
        (
            "SELECT a.id FROM bookings a JOIN maintenance b ON a.room = b.room JOIN maintenance x ON b.floor = x.floor CROSS JOIN shifts c",
            [(0, 1, 2), (3,)], "delay", "join-tree",
        ),
        (CYCLE, [(0, 1, 2), (3,)], "best-effort", "qdag"),
        # What `<>` connects is one part, which promises nothing.
        (APART, [(0, 1), (2,)], "best-effort", "nested-loop"),
    ],
)  # fmt: skip
def test_plans(text: str, parts: list[tuple[int, ...]], guarantee: str, algorithm: str) -> None:
    view = sql(text)
    plan = view.plan
    assert ([part.positions for part in plan.parts], plan.guarantee, plan.algorithm) == (parts, guarantee, algorithm)
    assert sorted(plan.order) == sorted(alias for alias, _ in view.query.aliases) and set(plan.bounds) == {"space", "update", "delay"}
    assert "product" in plan.cls and f"the product of {len(parts)} separately maintained parts" in plan.notes[0]
    others = [one.algorithm for one in alternatives(view.query, RELATIONS)]
    assert "nested-loop" in [algorithm, *others] and len({algorithm, *others}) == 1 + len(others)
    for other in others:
        assert sql(text, algorithm=other).plan.algorithm == other


def test_a_part_that_cannot_have_the_promise_is_named() -> None:
    boxes = "overlaps(a.span, b.span) AND overlaps(b.span, c.span) AND a.tag <= b.tag AND b.tag <= c.tag"
    text = f"SELECT a.nr FROM shifts a, shifts b, shifts c CROSS JOIN bookings d WHERE {boxes}"
    problem = refused({"sql": text, "guarantee": "strict"})
    assert problem.type == "infeasible-view" and "Theorem 3" in problem.extensions["theorem"]


TWO = {
    "from": {"w": "a", "x": "b", "y": "a", "z": "b"},
    "join": [{"overlaps": ["w.stay", "x.slot"]}, {"overlaps": ["y.stay", "z.slot"]}, {"cross": ["w", "y"]}],
    "where": [{"column": "y.tag", "op": "=", "value": "v"}],
    "select": ["w.id as i", "y.id as j"],
}


def _a(number: int, tag: str = "u") -> Row:
    return {"id": number, "room": "A", "floor": 1, "starts": 10 * number, "ends": 10 * number + 9, "tag": tag, "weight": None}


def _b(number: int) -> Row:
    return {"nr": number, "site": "N", "room": "A", "floor": 1, "starts": 10 * number + 2, "ends": 10 * number + 3, "note": None}


@pytest.mark.parametrize("algorithm", ["ij-heap", "join-tree"])
def test_a_part_without_rows_stops_the_others(tmp_path: Path, algorithm: str) -> None:
    """100 pairs and no pair of the other part: nothing is enumerated, nothing told. Then one comes, goes, and each row falls to it."""
    engine = prepared(tmp_path, {})
    assert engine.put_view("v", TWO | {"algorithm": algorithm}, wait=60)[1] == "created"
    view = engine.views["v"]
    assert isinstance(view.join, ProductJoin)
    feed = view.feed
    assert feed is not None
    subscription = feed.subscribe(None, False)
    engine.apply(to_batch([("a", INSERT, _a(i)) for i in range(100)] + [("b", INSERT, _b(i)) for i in range(100)]))
    reader = open_rows(engine.readers, "v")
    assert reader.empty() and reader.read(10) is None
    reader.close()
    emitted = view.join.update_steps
    engine.apply(to_batch([("a", INSERT, _a(200))]))
    # A join tree looks whether the row has partners, to keep its masks.
    assert view.join.update_steps <= emitted + (5 if algorithm == "join-tree" else 0) and view.statistics()["dead_ends"] in (0, None)
    engine.apply(to_batch([("a", INSERT, _a(300, "v")), ("b", INSERT, _b(300))]))
    reader, rows = open_rows(engine.readers, "v"), []
    while (batch := reader.read(7)) is not None:
        rows += batch.to_pylist()
    reader.close()
    # The new pair is one of the first part, too.
    assert sorted(row["i"] for row in rows) == [*range(100), 300] and {row["j"] for row in rows} == {300}
    found: dict[str, Any] = view.statistics()
    assert found["rows_read"] == 101 and found["steps_per_row"] < (40 if algorithm == "join-tree" else 8) and found["dead_ends"] == 0
    engine.apply(to_batch([("b", DELETE, {"nr": 300, "site": "N"})]))
    chunks = [(chunk.op, chunk.rows.num_rows) for chunk in subscription.next() if chunk.rows is not None]
    assert chunks == [("insert", 101), ("delete", 101)]
    engine.close()


@pytest.mark.parametrize(
    "text",
    [
        "SELECT x.id AS i, y.id AS j FROM a x JOIN a y ON overlaps(x.stay, y.stay) WHERE x.id <> y.id",
        "SELECT x.id AS i, y.id AS j, z.id AS k FROM a x, a y, a z WHERE overlaps(x.stay, y.stay) AND overlaps(x.stay, z.stay) "
        "AND overlaps(y.stay, z.stay) AND x.id <> y.id AND x.id <> z.id AND y.id <> z.id",
        "SELECT x.id AS i, y.nr AS j FROM a x CROSS JOIN b y",
        "SELECT x.id AS i, y.nr AS j, z.id AS k FROM a x CROSS JOIN b y CROSS JOIN a z WHERE z.id < 3",
    ],
    ids=["both orders", "all orders", "product", "three parts"],
)
def test_the_order_of_rows_is_the_same_however_many_are_asked_for(tmp_path: Path, text: str) -> None:
    engine = prepared(tmp_path, {})
    assert engine.put_view("v", {"sql": text}, wait=60)[1] == "created"
    changes = [("a", INSERT, _a(i) | {"starts": i, "ends": i + 4}) for i in range(75)] + [("b", INSERT, _b(i)) for i in range(70)]
    engine.apply(to_batch(changes))

    def rows(limit: int) -> list[Row]:
        reader, found = open_rows(engine.readers, "v"), list[Row]()
        while (batch := reader.read(limit)) is not None:
            found += batch.to_pylist()
        reader.close()
        return found

    whole = rows(100_000)
    assert len(whole) > 400 and rows(7) == whole and rows(1000) == whole
    engine.close()
