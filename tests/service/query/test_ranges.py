"""PostgreSQL's ranges in conditions, against Python's rules for them; and what is refused."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from tests.service.definitions import evaluate, relation, sql

_COLUMNS, _INTERVALS = "s:int64?, e:int64?, u:int64, v:int64, n:int64?, at:int64?", {"i": {"start": "s", "end": "e"}, "o": {"at": "at"}}
RELATIONS = {name: relation(f"{key}:int64, {_COLUMNS}", _INTERVALS, key) for name, key in (("l", "id"), ("r", "nr"))}
Row = dict[str, Any]


def rows(rng: random.Random, key: str) -> list[Row]:
    """The ends (s, e) are those of a declared interval, u and v any numbers."""
    found = list[Row]()
    for number in range(40):
        s, e = (rng.choice((None, *range(9))) for _ in "se")
        if s is not None and e is not None:
            s, e = min(s, e), max(s, e) + 1
        row = {"s": s, "e": e, "u": rng.randrange(9), "v": rng.randrange(9), "n": rng.choice((None, 3, 5)), "at": rng.choice((None, 2, 4))}
        found.append({key: number} | row)
    return found


def numbers(start: int | None, end: int | None, closed: bool = False, start_open: bool = False) -> set[int]:
    return set(range(-5 if start is None else start + start_open, 15 if end is None else end + closed))


_JOINED = {
    "int8range(x.s, x.e) && int8range(y.s, y.e)": lambda x, y: numbers(x["s"], x["e"]) & numbers(y["s"], y["e"]),
    "int8range(x.u, x.v) && int8range(y.u, y.v)": lambda x, y: numbers(x["u"], x["v"]) & numbers(y["u"], y["v"]),
    "int8range(x.u, x.v, '[]') && int8range(y.u, NULL)": lambda x, y: numbers(x["u"], x["v"], True) & numbers(y["u"], None),
    "int8range(x.u, x.v) && int8range(y.u, y.v, '[]')": lambda x, y: numbers(x["u"], x["v"]) & numbers(y["u"], y["v"], True),
    "int8range(x.s, x.e) @> y.at": lambda x, y: y["at"] in numbers(x["s"], x["e"]),
    "y.u <@ int8range(x.u, x.v, '[]')": lambda x, y: y["u"] in numbers(x["u"], x["v"], True),
    "int8range(x.n, x.v) && int8range(y.u, y.n)": lambda x, y: numbers(x["n"], x["v"]) & numbers(y["u"], y["n"]),
    "int8range(x.u, x.n, '()') && int8range(y.u, y.v, '(]')": lambda x, y: (
        numbers(x["u"], x["n"], False, True) & numbers(y["u"], y["v"], True, True)
    ),
    "int8range(x.u, x.v, '()') && int8range(y.u, y.v, '()')": lambda x, y: (
        numbers(x["u"], x["v"], False, True) & numbers(y["u"], y["v"], False, True)
    ),
    "int8range(x.s, x.n, '[]') && int8range(y.s, y.e)": lambda x, y: numbers(x["s"], x["n"], True) & numbers(y["s"], y["e"]),
    "int8range(x.u + 1, x.v * 2) && int8range(y.n, y.v)": lambda x, y: numbers(x["u"] + 1, x["v"] * 2) & numbers(y["n"], y["v"]),
    "int8range(x.n, x.v, '(]') @> y.n": lambda x, y: y["n"] in numbers(x["n"], x["v"], True, True),
    "int8range(x.u, x.n) @> y.u + 1": lambda x, y: y["u"] + 1 in numbers(x["u"], x["n"]),
}
_ALONE = {
    "int8range(x.s, x.e) && int8range(2, 5)": lambda x: numbers(x["s"], x["e"]) & numbers(2, 5),
    "int8range(x.u, x.n) && int8range(5, NULL)": lambda x: numbers(x["u"], x["n"]) & numbers(5, None),
    "int8range(x.u, x.n) && int8range(5, 2)": lambda x: set(),
    "int8range(x.n, x.v, '[]') @> x.u": lambda x: x["u"] in numbers(x["n"], x["v"], True),
    "x.n <@ int8range(2, 5)": lambda x: x["n"] in numbers(2, 5),
    "int8range(x.n, x.v) @> 4 OR x.u = 1": lambda x: x["u"] == 1 or 4 in numbers(x["n"], x["v"]),
    "int8range(x.u + 1, x.v * 2) @> x.n": lambda x: x["n"] in numbers(x["u"] + 1, x["v"] * 2),
    "int8range(x.u, x.v, '()') && int8range(x.n, 6, '(]')": lambda x: (
        numbers(x["u"], x["v"], False, True) & numbers(x["n"], 6, True, True)
    ),
}


def batch(name: str, given: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(given, schema=RELATIONS[name].arrow_schema())


@pytest.mark.parametrize("condition", [*_JOINED, *_ALONE])
def test_ranges(condition: str) -> None:
    rng = random.Random(3)
    left, right = rows(rng, "id"), rows(rng, "nr")
    tables = {"l": batch("l", left), "r": batch("r", right)}
    if condition in _ALONE:
        found = evaluate(sql(f"SELECT x.id FROM l x WHERE {condition}", RELATIONS), RELATIONS, tables)
        assert sorted(found) == [(x["id"],) for x in left if _ALONE[condition](x)]
        return
    found = evaluate(sql(f"SELECT x.id, y.nr FROM l x JOIN r y ON {condition}", RELATIONS), RELATIONS, tables)
    assert sorted(found) == [(x["id"], y["nr"]) for x in left for y in right if _JOINED[condition](x, y)]


def test_a_range_over_a_declared_interval_is_the_interval() -> None:
    join = "SELECT b.id, m.id FROM bookings b LEFT JOIN maintenance m ON "
    ranges = sql(join + "tstzrange(b.checkin, b.until) && tstzrange(m.s, m.e)").query
    assert ranges == sql(join + "overlaps(b.open, m.slot)").query
    assert sql(join + "tstzrange(b.checkin, b.until) @> m.at").query == sql(join + "overlaps(b.open, m.moment)").query
