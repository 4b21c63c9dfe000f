"""The brute force of `livejoin check`, against nested loops over Python values."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from livejoin.wire.schema import parse_relation
from service.checking import recomputation
from service.checking.candidates import candidates
from service.checking.recomputation import Sum, hashes, recompute, total
from service.views.parse import parse_view
from tests.relations import declared

DEFINITION = declared("id:int64, room:string?, level:float64?, s:int64, e:int64?", stay="s e [)")
RELATIONS = {"r": parse_relation(DEFINITION), "q": parse_relation(DEFINITION)}
SELECT = "SELECT a.id AS a_id, b.id AS b_id"
Row = dict[str, Any]


def table(chance: random.Random, rows: int) -> list[Row]:
    found = []
    for number in range(rows):
        start = chance.randrange(40)
        end = chance.choice([None, start + chance.randint(1, 10)])
        level = chance.choice([None, 0.0, -0.0, 1.5])
        found.append({"id": number, "room": chance.choice([None, "x", "y", "x\ty"]), "level": level, "s": start, "e": end})
    return found


def overlap(a: Row, b: Row) -> bool:
    return (b["e"] is None or a["s"] < b["e"]) and (a["e"] is None or b["s"] < a["e"])


def equal(a: Row, b: Row, column: str) -> bool:
    return a[column] is not None and a[column] == b[column]


def known(a: Row, b: Row, column: str) -> bool:
    return a[column] is not None and b[column] is not None


VIEWS = {
    "pair": (f"{SELECT} FROM r a, q b WHERE overlaps(a.stay, b.stay)", lambda a, b: overlap(a, b)),
    "keyed": (
        f"{SELECT} FROM r a, q b WHERE a.room = b.room AND a.level = b.level AND overlaps(a.stay, b.stay)",
        lambda a, b: equal(a, b, "room") and equal(a, b, "level") and overlap(a, b),
    ),
    "both orders and the diagonal": (f"{SELECT} FROM r a, r b WHERE overlaps(a.stay, b.stay)", overlap),
    "less": (f"{SELECT} FROM r a, r b WHERE overlaps(a.stay, b.stay) AND a.id < b.id", lambda a, b: overlap(a, b) and a["id"] < b["id"]),
    "not equal": (
        f"{SELECT} FROM r a, r b WHERE overlaps(a.stay, b.stay) AND a.id <> b.id",
        lambda a, b: overlap(a, b) and a["id"] != b["id"],
    ),
    "filters": (
        f"{SELECT} FROM r a, q b WHERE overlaps(a.stay, b.stay) AND a.room = 'x' AND b.level IS NULL",
        lambda a, b: overlap(a, b) and a["room"] == "x" and b["level"] is None,
    ),
    "numbers in order": (f"{SELECT} FROM r a, q b WHERE a.s < b.e", lambda a, b: b["e"] is not None and a["s"] < b["e"]),
    "floats in order": (f"{SELECT} FROM r a, q b WHERE b.level <= a.level", lambda a, b: known(a, b, "level") and b["level"] <= a["level"]),
    "texts in order": (f"{SELECT} FROM r a, q b WHERE a.room < b.room", lambda a, b: known(a, b, "room") and a["room"] < b["room"]),
    "a distance": (f"{SELECT} FROM r a, q b WHERE abs(a.s - b.e) <= 3", lambda a, b: b["e"] is not None and abs(a["s"] - b["e"]) <= 3),
    "a distance of floats, per key": (
        f"{SELECT} FROM r a, q b WHERE a.room = b.room AND abs(b.level - a.level) <= 1.5 AND a.s <= b.s",
        lambda a, b: equal(a, b, "room") and known(a, b, "level") and abs(a["level"] - b["level"]) <= 1.5 and a["s"] <= b["s"],
    ),
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("block", [1, 7, 1 << 18])
def test_recomputed_rows_are_those_of_nested_loops(name: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recomputation, "BLOCK", block)
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    chance = random.Random(seed)
    sql, holds = VIEWS[name]
    query = parse_view("v", {"sql": sql}, RELATIONS).query
    for size in (0, 1, 60):
        rows = {relation: table(chance, size) for relation in RELATIONS}
        tables = {relation: pa.RecordBatch.from_pylist(rows[relation], RELATIONS[relation].arrow_schema()) for relation in rows}
        first, second = (rows[relation] for _, relation in query.aliases)
        found = [tuple(row.values())[2:] for batch in recompute(query, RELATIONS, tables) for row in batch.to_pylist()]
        assert sorted(found) == sorted((a["id"], b["id"]) for a in first for b in second if holds(a, b))


def test_one_alias_and_a_condition_that_never_holds() -> None:
    rows = {relation: pa.RecordBatch.from_pylist(table(random.Random(1), 20), RELATIONS[relation].arrow_schema()) for relation in RELATIONS}
    alone = parse_view("v", {"sql": "SELECT a.id FROM r a WHERE a.room = 'x'"}, RELATIONS).query
    expected = sum(row["room"] == "x" for row in table(random.Random(1), 20))
    assert total(recompute(alone, RELATIONS, rows)).rows == expected > 0
    never = parse_view("v", {"sql": f"{SELECT} FROM r a, q b WHERE overlaps(a.stay, b.stay) AND a.room = NULL"}, RELATIONS).query
    assert total(recompute(never, RELATIONS, rows)) == Sum(0, 0)


def batches(values: list[Row], size: int) -> Iterator[pa.RecordBatch]:
    schema = pa.schema(
        [("i", pa.int64()), ("f", pa.float64()), ("s", pa.utf8()), ("b", pa.bool_()), ("d", pa.date32()), ("t", pa.timestamp("us", "UTC"))]
    )
    for start in range(0, len(values), size):
        yield pa.RecordBatch.from_pylist(values[start : start + size], schema)


def test_the_checksum_knows_rows_and_not_their_order() -> None:
    values: list[Row] = [{"i": n, "f": n / 2, "s": str(n % 3), "b": n % 2 == 0, "d": n, "t": n * 1000} for n in range(50)]
    values += [{"i": None, "f": None, "s": None, "b": None, "d": None, "t": None}]
    right = total(batches(values, 7))
    assert right == total(batches(values[::-1], 50)) and right.rows == 51
    for column in values[3]:
        for other in (None, values[4][column] if column != "b" else True):
            changed = [*values[:3], values[3] | {column: other}, *values[4:]]
            assert total(batches(changed, 50)) != right, (column, other)
    assert len(set(hashes(next(batches(values, 51))).tolist())) == 51


def test_what_is_looked_at_is_close_to_what_is_found() -> None:
    """Boxes that lie apart in one of two dimensions, and aliases that the definition names in an order without conditions between them."""
    size = 2000
    box: Row = {
        "columns": [{"name": name, "type": "int64"} for name in ("id", "x0", "x1", "y0", "y1")],
        "key": ["id"],
        "intervals": {"x": {"start": "x0", "end": "x1"}, "y": {"start": "y0", "end": "y1"}},
    }
    boxes = parse_relation(box)
    rows = [{"id": n, "x0": 0, "x1": size, "y0": 3 * n, "y1": 3 * n + 4} for n in range(size)]
    table = pa.RecordBatch.from_pylist(rows, boxes.arrow_schema())
    sql = "SELECT a.id AS i, b.id AS j FROM p a, p b WHERE overlaps(a.x, b.x) AND overlaps(a.y, b.y) AND a.id < b.id"
    query = parse_view("v", {"sql": sql}, {"p": boxes}).query
    found = candidates(query, {"a": boxes, "b": boxes}, {"a": table}, "b", table)
    assert total(recompute(query, {"p": boxes}, {"p": table})).rows == size - 1 and found.count < 4 * size
    sql = "SELECT a.id AS i, b.id AS j, c.id AS k FROM p a, p b, p c WHERE a.y0 = c.y0 AND b.y1 = c.y1"
    query = parse_view("v", {"sql": sql}, {"p": boxes}).query
    assert candidates(query, {"a": boxes, "c": boxes}, {"a": table}, "c", table).count == size
    assert total(recompute(query, {"p": boxes}, {"p": table})).rows == size
