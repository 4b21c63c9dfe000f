"""Tables that get columns while they are written to and read."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from livejoin.wire.batch import RowBlock
from service.tables.store import NO_NUMBERS, Table


def schema_of(texts: bool, columns: int, nullable: bool, added: int = 0) -> pa.Schema:
    fields = [pa.field("id", pa.int64(), False)]
    for number in range(columns):
        fields.append(pa.field(f"c{number}", pa.utf8() if texts and number % 2 else pa.int64(), nullable))
    for number in range(added):
        fields.append(pa.field(f"n{number}", pa.utf8() if number % 2 else pa.float64(), True))
    return pa.schema(fields)


def row(rng: random.Random, schema: pa.Schema, key: int) -> dict[str, Any]:
    def value(field: pa.Field) -> Any:
        if field.nullable and rng.random() < 0.3:
            return None
        return {pa.int64(): rng.randrange(100), pa.float64(): rng.random()}.get(field.type, rng.choice(["", "a", "bcd" * 5]))

    return {field.name: value(field) for field in schema} | {"id": key}


def block(schema: pa.Schema, rows: list[dict[str, Any]]) -> RowBlock:
    return RowBlock(pa.RecordBatch.from_pylist(rows, schema=schema))


@pytest.mark.parametrize("texts", [False, True])
@pytest.mark.parametrize(
    ("columns", "nullable", "added"), [(3, False, 1), (3, True, 2), (31, True, 1), (31, False, 40), (2, False, 0), (64, True, 1)]
)
def test_rows_keep_their_slots(texts: bool, columns: int, nullable: bool, added: int) -> None:
    rng = random.Random(columns)
    old = schema_of(texts, columns, nullable)
    new = schema_of(texts, columns, True, added)
    table, model, slots_of = Table(old, ["id"]), dict[int, dict[str, Any]](), dict[int, int]()
    version = 0

    def change(schema: pa.Schema) -> None:
        nonlocal version
        version += 1
        keys = rng.sample(range(100), 10)
        deleted = [key for key in keys if key in model]
        if deleted:
            table.delete(version, np.array([slots_of[key] for key in deleted], np.int32))
            for key in deleted:
                del model[key], slots_of[key]
        inserted = [row(rng, schema, key) for key in keys[: rng.randrange(10)]]
        if inserted:
            for made, slot in zip(inserted, table.insert(version, block(schema, inserted)).tolist(), strict=True):
                model[made["id"]], slots_of[made["id"]] = made, slot
        if rng.random() < 0.3:
            while table.reclaim(version, NO_NUMBERS):
                pass

    def look(schema: pa.Schema) -> None:
        table.check()
        slots, _ = table.scan(version, 0, 1000)
        assert sorted(slots.tolist()) == sorted(slots_of.values())
        rows = table.take(schema.names, slots).to_pylist()
        empty = dict.fromkeys(schema.names)
        assert {one["id"]: one for one in rows} == {key: empty | one for key, one in model.items()}

    for _ in range(30):
        change(old)
    look(old)
    table.adopt(new, table.wider(new))
    look(new)
    for _ in range(30):
        change(new)
        look(new)
