"""Random changes of the relations that the views of the batch are over, as streams bring them; and what DuckDB finds after them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from livejoin.wire.schema import parse_relation
from tests.streaming.cluster.test_batch import SPANS, in_duckdb

Row = dict[str, Any]

_OF = {
    "a": ("id", {"room": "string", "floor": "int64", "starts": "int64", "ends": "int64", "low": "int64", "high": "int64"}),
    "b": ("nr", {"room": "string", "floor": "int64", "s": "int64", "e": "int64", "least": "int64", "most": "int64"}),
    "e": ("id", {"p": "int64", "q": "int64"}),
}
KEYS = {name: key for name, (key, _) in _OF.items()}
ARROW = {"int64": pa.int64(), "string": pa.utf8()}
SCHEMAS = {
    name: pa.schema([(key, pa.int64()), *((column, ARROW[kind]) for column, kind in columns.items())])
    for name, (key, columns) in _OF.items()
}
DEFINITIONS = {
    name: parse_relation({
        "columns": [{"name": key, "type": "int64"}, *({"name": one, "type": kind, "nullable": True} for one, kind in columns.items())],
        "key": [key],
        "intervals": {span: {"start": start, "end": end, "bounds": bounds} for span, (start, end, bounds) in SPANS[name].items()},
    })
    for name, (key, columns) in _OF.items()
}  # fmt: skip


class Churn:
    """`rows`: of each relation by key. `kind`: as of streams."""

    def __init__(self, seed: int, names: Sequence[str], kind: str, keys: int = 25) -> None:
        self._random, self._names, self._kind, self._keys = random.Random(seed), names, kind, keys
        self.rows: dict[str, dict[int, Row]] = {name: {} for name in names}
        self._seq = 0

    def epoch(self, most: int) -> dict[str, list[Row]]:
        """By relation, in no order. Keys come several times."""
        return {name: self._changes(name, self._random.randrange(most)) for name in self._names}

    def _changes(self, name: str, number: int) -> list[Row]:
        rng, rows, key = self._random, self.rows[name], KEYS[name]
        emitted = []
        for _ in range(number):
            self._seq += 1
            if self._kind == "inserts":
                row = self._row(name, self._seq)
                emitted.append(row)
                rows[self._seq] = row
                continue
            one = rng.randrange(self._keys)
            old = rows.pop(one, None)
            if old is not None and self._kind == "images":
                emitted.append({**old, "_op": "delete"})
            if rng.random() < 0.3:
                if self._kind == "ordered":
                    emitted.append({key: one, "_op": "delete", "_seq": self._seq})
                continue
            row = self._row(name, one)
            if old is not None and rng.random() < 0.3:  # some of it
                row |= {column: old[column] for column in rng.sample(list(old), len(old) // 2)} | {key: one}
                row = self._sound(name, row)
            rows[one] = row
            emitted.append({**row, "_op": rng.choice(["upsert", "insert", None]), "_seq": self._seq})
        rng.shuffle(emitted)
        return emitted

    def _row(self, name: str, key: int) -> Row:
        rng, found = self._random, {KEYS[name]: key}
        for column in _OF[name][1]:
            found[column] = rng.choice(["A", "A", "A", "B", "C", None]) if column == "room" else rng.randrange(1, 4)
        for span, (start, end, _) in SPANS[name].items():
            long = 4 if span == "levels" else 60
            found[start] = None if rng.random() < 0.05 else rng.randrange(long)
            found[end] = None if rng.random() < 0.05 else (found[start] or 0) + rng.randrange(1 + long // 5)
        return self._sound(name, found)

    def _sound(self, name: str, row: Row) -> Row:
        for start, end, _ in SPANS[name].values():
            if row[start] is not None and row[end] is not None:
                row[end] = max(row[start], row[end])
        return row

    def expected(self, sql: str) -> Counter[tuple[Any, ...]]:
        tables = {name: pa.Table.from_pylist(list(rows.values()), SCHEMAS[name]) for name, rows in self.rows.items()}
        return in_duckdb(sql, **tables)


def follow(now: Counter[tuple[Any, ...]], changes: Sequence[Row], outputs: Sequence[str]) -> None:
    """Of an epoch; deletes are of rows that are there."""
    for row in sorted(changes, key=lambda row: row["_op"] != "delete"):
        values = tuple(row[name] for name in outputs)
        now[values] += -1 if row["_op"] == "delete" else 1
        assert now[values] >= 0, ("a row goes that was not there", row)
