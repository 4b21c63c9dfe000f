"""The naive twin of the engine: rows in dicts, views by nested loops; every version is kept."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa

from livejoin.wire.batch import DELETE, INSERT, TRUNCATE, UPSERT, Batch, Changes, RowBlock
from livejoin.wire.schema import RelationDefinition, parse_relation
from tests.relations import declared

Row = dict[str, Any]
KEYS = {"a": ("id",), "b": ("site", "nr")}
DEFINITIONS: dict[str, RelationDefinition] = {
    "a": parse_relation(
        declared(
            "id:int64, room:string?, floor:int64?, starts:timestamp, ends:timestamp?, tag:string, weight:float64?", stay="starts ends [)"
        )
    ),
    "b": parse_relation(
        declared(
            "nr:int64, site:string, room:string?, floor:int64?, starts:timestamp?, ends:timestamp?, note:string?",
            "site, nr", slot="starts ends []",
        )
    ),
}
_INF = math.inf


def _stay(row: Row) -> tuple[float, float]:
    return row["starts"], _INF if row["ends"] is None else row["ends"] - 1


def _slot(row: Row) -> tuple[float, float]:
    return -_INF if row["starts"] is None else row["starts"], _INF if row["ends"] is None else row["ends"]


def _meet(x: tuple[float, float], y: tuple[float, float]) -> bool:
    return x[0] <= y[1] and y[0] <= x[1]


def _equal(x: Any, y: Any) -> bool:
    return x is not None and x == y


class TwinView:
    """`aliases` as (alias, relation); `on`: the condition; `select`: returns the output row; `ends`: the closed interval of each alias."""

    def __init__(
        self, aliases: list[tuple[str, str]], definition: dict[str, Any], on: Callable[..., bool], select: Callable[..., Row],
        ends: list[Callable[[Row], tuple[float, float]]],
    ) -> None:  # fmt: skip
        self.aliases, self.definition, self.on, self.select, self.ends = aliases, definition, on, select, ends

    def combinations(self, relations: dict[str, dict[tuple[Any, ...], Row]]) -> list[tuple[Row, ...]]:
        parts = [list(relations[name].values()) for _, name in self.aliases]
        return [rows for rows in product(*parts) if self.on(*rows)]

    def identity(self, rows: tuple[Row, ...]) -> tuple[Any, ...]:
        return tuple(row[column] for (_, name), row in zip(self.aliases, rows, strict=True) for column in KEYS[name])

    def rows(self, relations: dict[str, dict[tuple[Any, ...], Row]]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        return {self.identity(rows): values(self.select(*rows)) for rows in self.combinations(relations)}


def values(row: Row) -> tuple[Any, ...]:
    """Return comparable values: NaN equals NaN."""
    return tuple("NaN" if isinstance(value, float) and math.isnan(value) else value for value in row.values())


def _clash(x: Row, y: Row) -> Row:
    (a, b), (c, d) = _stay(x), _slot(y)
    end = min(b, d)
    return {"id": x["id"], "nr": y["nr"], "clash_start": max(a, c), "clash_end": None if end == _INF else end + 1}


def _pair_key(x: Row, y: Row) -> bool:
    return _equal(x["room"], y["room"]) and _equal(x["floor"], y["floor"])


_AB = {"from": {"x": "a", "y": "b"}}
_AA = {"from": {"x": "a", "y": "a"}}
_MEETS = {"overlaps": ["x.stay", "y.stay"]}
VIEWS = {
    "clashes": TwinView(
        [("x", "a"), ("y", "b")],
        _AB
        | {
            "join": [{"equal": ["x.room", "y.room"]}, {"equal": ["x.floor", "y.floor"]}, {"overlaps": ["x.stay", "y.slot"]}],
            "select": ["x.id as id", "y.nr as nr", {"intersection": ["x.stay", "y.slot"], "as": "clash"}],
        },
        lambda x, y: _pair_key(x, y) and _meet(_stay(x), _slot(y)),
        _clash,
        [_stay, _slot],
    ),
    "tags": TwinView(
        [("x", "a"), ("y", "b")],
        _AB
        | {
            "join": [{"overlaps": ["x.stay", "y.slot"]}],
            "where": [{"column": "x.tag", "op": "=", "value": "u"}],
            "select": ["x.weight as w"],
        },
        lambda x, y: x["tag"] == "u" and _meet(_stay(x), _slot(y)),
        lambda x, y: {"w": x["weight"]},
        [_stay, _slot],
    ),
    "both": TwinView(
        [("x", "a"), ("y", "a")],
        _AA | {"join": [_MEETS],
            "select": ["x.id as i", "y.tag as t"]},
        lambda x, y: _meet(_stay(x), _stay(y)),
        lambda x, y: {"i": x["id"], "t": y["tag"]},
        [_stay, _stay],
    ),
    "once": TwinView(
        [("x", "a"), ("y", "a")],
        _AA | {"join": [{"equal": ["x.room", "y.room"]}, _MEETS, {"less": ["y.id", "x.id"]}],
            "select": ["x.id as i", "y.weight as w"]},
        lambda x, y: _equal(x["room"], y["room"]) and _meet(_stay(x), _stay(y)) and y["id"] < x["id"],
        lambda x, y: {"i": x["id"], "w": y["weight"]},
        [_stay, _stay],
    ),
    "apart": TwinView(
        [("x", "a"), ("y", "a")],
        _AA | {"join": [_MEETS, {"not_equal": ["x.id", "y.id"]}],
            "select": ["x.tag as s", "y.tag as t"]},
        lambda x, y: _meet(_stay(x), _stay(y)) and x["id"] != y["id"],
        lambda x, y: {"s": x["tag"], "t": y["tag"]},
        [_stay, _stay],
    ),
    "by_tag": TwinView(
        [("x", "a"), ("y", "a")],
        _AA | {"join": [_MEETS, {"less": ["x.tag", "y.tag"]}],
            "select": ["x.id as i", "y.id as j"]},
        lambda x, y: _meet(_stay(x), _stay(y)) and x["tag"] < y["tag"],
        lambda x, y: {"i": x["id"], "j": y["id"]},
        [_stay, _stay],
    ),
    "checked": TwinView(
        [("x", "a"), ("y", "a")],
        _AA
        | {
            "join": [_MEETS, {"less": ["x.id", "y.id"]}],
            "where": [{"column": "x.tag", "op": "!=", "value": "v"}],
            "select": ["x.id as i", "y.tag as t"],
        },
        lambda x, y: x["tag"] != "v" and _meet(_stay(x), _stay(y)) and x["id"] < y["id"],
        lambda x, y: {"i": x["id"], "t": y["tag"]},
        [_stay, _stay],
    ),
    "list": TwinView(
        [("x", "a")],
        {"from": {"x": "a"}, "where": [{"column": "x.tag", "op": "!=", "value": "w"}],
            "select": ["x.tag as t", "x.weight as w"]},
        lambda x: x["tag"] != "w",
        lambda x: {"t": x["tag"], "w": x["weight"]},
        [],
    ),
}


def _not_null(*values: Any) -> bool:
    return all(value is not None for value in values)


_ABA = {"from": {"x": "a", "y": "b", "z": "a"}}
_FOUR = {"from": {"x": "a", "y": "b", "z": "a", "w": "b"}}
MANY = {
    "path": TwinView(
        [("x", "a"), ("y", "b"), ("z", "a")],
        _ABA | {"join": [{"overlaps": ["x.stay", "y.slot"]}, {"overlaps": ["y.slot", "z.stay"]}],
            "select": ["x.id as i", "y.nr as n", "z.tag as t"]},
        lambda x, y, z: _meet(_stay(x), _slot(y)) and _meet(_slot(y), _stay(z)),
        lambda x, y, z: {"i": x["id"], "n": y["nr"], "t": z["tag"]},
        [_stay, _slot, _stay],
    ),
    "clique": TwinView(
        [("x", "a"), ("y", "b"), ("z", "a")],
        _ABA
        | {
            "join": [
                {"equal": ["x.room", "y.room"]}, {"equal": ["y.room", "z.room"]}, {"overlaps": ["x.stay", "y.slot"]},
                {"overlaps": ["y.slot", "z.stay"]}, {"overlaps": ["x.stay", "z.stay"]}, {"less": ["x.id", "z.id"]},
            ],
            "select": ["x.id as i", "y.nr as n", "z.id as j"],
        },
        lambda x, y, z: _equal(x["room"], y["room"]) and _equal(y["room"], z["room"]) and x["id"] < z["id"]
        and _meet(_stay(x), _slot(y)) and _meet(_slot(y), _stay(z)) and _meet(_stay(x), _stay(z)),
        lambda x, y, z: {"i": x["id"], "n": y["nr"], "j": z["id"]},
        [_stay, _slot, _stay],
    ),
    "boxes": TwinView(
        [("x", "a"), ("y", "b")],
        _AB | {"join": [{"overlaps": ["x.stay", "y.slot"]}, {"at_most": ["x.floor", "y.floor"]}, {"less": ["y.nr", "x.id"]}],
            "select": ["x.tag as t"]},
        lambda x, y: _meet(_stay(x), _slot(y)) and _not_null(x["floor"], y["floor"]) and x["floor"] <= y["floor"] and y["nr"] < x["id"],
        lambda x, y: {"t": x["tag"]},
        [_stay, _slot],
    ),
    "near": TwinView(
        [("x", "a"), ("y", "b")],
        _AB | {"join": [{"within": ["x.starts", "y.starts"], "distance": 3}, {"equal": ["x.floor", "y.floor"]}],
            "select": ["x.id as i", "y.nr as n"]},
        lambda x, y: _equal(x["floor"], y["floor"]) and _not_null(y["starts"]) and abs(x["starts"] - y["starts"]) <= 3,
        lambda x, y: {"i": x["id"], "n": y["nr"]},
        [],
    ),
    "later": TwinView(
        [("x", "a"), ("y", "a")],
        _AA | {"join": [{"less": ["x.ends", "y.starts"]}, {"equal": ["x.room", "y.room"]}],
            "select": ["x.id as i", "y.id as j"]},
        lambda x, y: _equal(x["room"], y["room"]) and _not_null(x["ends"]) and x["ends"] < y["starts"],
        lambda x, y: {"i": x["id"], "j": y["id"]},
        [],
    ),
    "natural": TwinView(
        [("x", "a"), ("y", "b"), ("z", "b")],
        {"from": {"x": "a", "y": "b", "z": "b"}}
        | {"join": [{"equal": ["x.room", "y.room"]}, {"equal": ["x.floor", "z.floor"]}, {"not_equal": ["y.site", "z.site"]}],
            "select": ["x.weight as w", "z.note as n"]},
        lambda x, y, z: _equal(x["room"], y["room"]) and _equal(x["floor"], z["floor"]) and y["site"] != z["site"],
        lambda x, y, z: {"w": x["weight"], "n": z["note"]},
        [],
    ),
    "product": TwinView(
        [("x", "a"), ("y", "b")],
        _AB | {"join": [{"cross": ["x", "y"]}], "where": [{"column": "x.tag", "op": "=", "value": "u"},
                {"column": "y.note", "op": "=", "value": "n"}],
            "select": ["x.id as i"]},
        lambda x, y: x["tag"] == "u" and y["note"] == "n",
        lambda x, y: {"i": x["id"]},
        [],
    ),
    "twice": TwinView(
        [("x", "a"), ("y", "b")],
        _AB | {"join": [{"equal": ["x.id", "y.nr"]}, {"equal": ["x.floor", "y.nr"]}],
            "select": ["x.tag as t", "y.site as s"]},
        lambda x, y: x["id"] == y["nr"] and _equal(x["floor"], y["nr"]),
        lambda x, y: {"t": x["tag"], "s": y["site"]},
        [],
    ),
    "mixed": TwinView(
        [("x", "a"), ("y", "b"), ("z", "a"), ("w", "b")],
        _FOUR
        | {
            "join": [
                {"equal": ["x.room", "y.room"]}, {"overlaps": ["x.stay", "y.slot"]}, {"overlaps": ["y.slot", "z.stay"]},
                {"equal": ["z.floor", "w.floor"]}, {"overlaps": ["z.stay", "w.slot"]}, {"less": ["x.weight", "z.weight"]},
                {"not_equal": ["y.site", "w.site"]},
            ],
            "where": [{"column": "z.tag", "op": "!=", "value": "v"}],
            "select": ["x.id as i", "y.nr as n", "z.id as j", "w.nr as m"],
        },
        lambda x, y, z, w: _equal(x["room"], y["room"]) and z["tag"] != "v" and y["site"] != w["site"] and _equal(z["floor"], w["floor"])
        and _below(x["weight"], z["weight"]) and _meet(_stay(x), _slot(y)) and _meet(_slot(y), _stay(z)) and _meet(_stay(z), _slot(w)),
        lambda x, y, z, w: {"i": x["id"], "n": y["nr"], "j": z["id"], "m": w["nr"]},
        [_stay, _slot, _stay, _slot],
    ),
}  # fmt: skip


def _below(x: float | None, y: float | None) -> bool:
    """SQL's `<`: NaN is greater than every number."""
    if x is None or y is None or math.isnan(x):
        return False
    return math.isnan(y) or x < y


class Twin:
    """Relations `a` and `b` as dicts, applied change by change; `history[v]` is every view at version v."""

    def __init__(self, views: dict[str, TwinView] = VIEWS) -> None:
        self.views = views
        self.relations: dict[str, dict[tuple[Any, ...], Row]] = {"a": {}, "b": {}}
        self.version = 0
        self.history: dict[int, dict[str, dict[tuple[Any, ...], tuple[Any, ...]]]] = {}
        self.tables: dict[int, dict[str, dict[tuple[Any, ...], Row]]] = {}
        self._remember()

    def _remember(self) -> None:
        self.history[self.version] = {name: view.rows(self.relations) for name, view in self.views.items()}
        self.tables[self.version] = {name: dict(rows) for name, rows in self.relations.items()}

    def apply(self, changes: list[tuple[str, int, Row]], on_error: str) -> tuple[int, list[int]] | None:
        """Return (ignored, indices of bad rows), or None if the batch is refused."""
        relations = {name: dict(rows) for name, rows in self.relations.items()}
        ignored, bad = 0, []
        for index, (name, op, row) in enumerate(changes):
            rows, key = relations[name], tuple(row.get(column) for column in KEYS[name])
            if op == TRUNCATE:
                rows.clear()
            elif op == DELETE:
                ignored += rows.pop(key, None) is None
            elif op == INSERT and key in rows:
                bad.append(index)
            else:
                rows[key] = row
        if bad and on_error == "reject":
            return None
        self.relations = relations
        self.version += 1
        self._remember()
        return ignored, bad


class Source:
    """Random changes over small domains, so that values often coincide."""

    def __init__(self, seed: int, keys: int) -> None:
        self.random, self.keys = random.Random(seed), keys

    def key(self, name: str) -> Row:
        if name == "a":
            return {"id": self.random.randrange(self.keys)}
        return {"nr": self.random.randrange(1 + self.keys // 2), "site": self.random.choice(("N", "S"))}

    def row(self, name: str) -> Row:
        pick = self.random.choice
        start = self.random.randrange(60)
        key = self.key(name)
        room, floor = pick(("A", "B", "C", None)), pick((1, 1, 2, None))
        if name == "a":
            end = pick((None, start + 1 + self.random.randrange(9), start + 1 + self.random.randrange(9)))
            weight = pick((None, 0.0, -0.0, math.nan, 1.5))
            return key | {"room": room, "floor": floor, "starts": start, "ends": end, "tag": pick(("u", "v", "w")), "weight": weight}
        end = pick((None, start + self.random.randrange(9), start + self.random.randrange(9), start + 1))
        return key | {"room": room, "floor": floor, "starts": pick((None, start, start)), "ends": end, "note": pick((None, "n", "o"))}

    def changes(self, count: int, known: dict[str, dict[tuple[Any, ...], Row]]) -> list[tuple[str, int, Row]]:
        result: list[tuple[str, int, Row]] = []
        for _ in range(count):
            name = self.random.choice(("a", "a", "b"))
            draw = self.random.random()
            if draw < 0.01:
                result.append((name, TRUNCATE, {}))
            elif draw < 0.25:
                result.append((name, DELETE, self.key(name)))
            elif draw < 0.32:
                result.append((name, INSERT, self.row(name)))
            elif draw < 0.5 and known[name]:  # one column of an existing row, or none
                old = self.random.choice(list(known[name].values()))
                column = self.random.choice([column for column in old if column not in (*KEYS[name], "starts", "ends")])
                result.append((name, UPSERT, old | {column: self.row(name)[column]}))
            else:
                result.append((name, UPSERT, self.row(name)))
        return result


def of_different_rows(changes: list[tuple[str, int, Row]], known: dict[str, dict[tuple[Any, ...], Row]]) -> list[tuple[str, int, Row]]:
    """Return the first change of each row, without changes that are ignored, bad, or of all rows."""
    first: dict[tuple[Any, ...], tuple[str, int, Row]] = {}
    for name, op, row in changes:
        key = tuple(row.get(column) for column in KEYS[name])
        if op != TRUNCATE and (op == UPSERT or (key in known[name]) == (op == DELETE)):
            first.setdefault((name, key), (name, op, row))
    return list(first.values())


def to_batch(changes: list[tuple[str, int, Row]], definitions: Mapping[str, RelationDefinition] = DEFINITIONS, **fields: Any) -> Batch:
    """Return what a decoder would return."""
    parts = []
    for name in dict.fromkeys(name for name, _, _ in changes):
        index = [i for i, (relation, _, _) in enumerate(changes) if relation == name]
        schema = definitions[name].arrow_schema()
        rows = [{field.name: changes[i][2].get(field.name) for field in schema} for i in index]
        batch = pa.RecordBatch.from_pylist(rows, schema=schema)
        ops = np.array([changes[i][1] for i in index], np.uint8)
        parts.append(Changes(name, definitions[name], ops, RowBlock(batch), np.array(index, np.int64)))
    return Batch(parts, len(changes), 0, [], 0, **fields)


def plain(batch: pa.RecordBatch) -> list[Row]:
    """Return rows with timestamps as integers."""
    columns = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names).to_pylist()
