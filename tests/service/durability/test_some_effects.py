"""Some effects, and the bytes that they take."""
from __future__ import annotations

from typing import Any

import pyarrow as pa

from livejoin.wire.batch import RowBlock
from service.durability.effects import Effect, encode_effects
from tests.service.durability.test_effects import decoded

SCHEMA = pa.schema([
    pa.field("id", pa.int64(), nullable=False), pa.field("room", pa.utf8()),
    pa.field("at", pa.timestamp("us", "UTC")), pa.field("day", pa.date32()), pa.field("x", pa.float64()), pa.field("ok", pa.bool_()),
])


def rows(ids: list[int]) -> RowBlock:
    data = [{"id": i, "room": f"räum {i}" if i % 3 else None, "at": i * 1_000_001, "day": i, "x": i / 3, "ok": i % 2 == 0} for i in ids]
    return RowBlock(pa.RecordBatch.from_pylist(data, schema=SCHEMA))


def keys(ids: list[int]) -> RowBlock:
    return RowBlock(rows(ids).arrow.select(["id"]))

def emitted(effect: Effect) -> tuple[Any, ...]:
    return effect.relation_id, effect.truncate, effect.deletes.arrow.to_pylist(), effect.inserts.arrow.to_pylist()


def test_effects_come_back() -> None:
    effects = [
        Effect(3, False, keys([4, 5]), rows([1, 2, 3])),
        Effect(9, True, keys([]), rows([7])),
        Effect(4, False, keys([8]), rows([])),
        Effect(5, True, keys([]), rows([])),
    ]
    schemas = dict.fromkeys((3, 4, 5, 9), SCHEMA)
    assert list(map(emitted, decoded(encode_effects(effects), schemas, dict.fromkeys(schemas, ["id"])))) == list(map(emitted, effects))
    assert encode_effects([]) == b"" and decoded(b"", schemas, dict.fromkeys(schemas, ["id"])) == []


def test_few_rows_are_kept_as_json_if_it_can_tell_them() -> None:
    def few(values: list[tuple[Any, ...]], schema: pa.Schema = SCHEMA) -> RowBlock:
        return RowBlock.few(values, pa.struct(schema))

    schemas, key = {1: SCHEMA}, {1: ["id"]}
    keyed = pa.schema([SCHEMA.field("id")])
    emitted = [(-(2**63), 'ä"\0\n', 2**63 - 1, -719_162, -0.0, True), (7, None, None, None, None, None), (8, "", 0, 0, 1e300, False)]
    payload = encode_effects([Effect(1, False, few([(5,), (2**63 - 1,)], keyed), few(emitted))])
    assert len(payload) < 250
    (effect,) = decoded(payload, schemas, key)
    assert effect.inserts.values is not None and repr(effect.inserts.values) == repr(emitted)
    assert effect.deletes.values is not None and effect.deletes.values == [(5,), (2**63 - 1,)]
    assert effect.inserts.arrow.schema == SCHEMA.remove_metadata() and effect.deletes.arrow.schema.names == ["id"]
    for number in (float("nan"), float("-inf")):
        strange = few([(1, "x", 1, 1, number, True)])
        (effect,) = decoded(encode_effects([Effect(1, True, few([(5,)], keyed), strange)]), schemas, key)
        assert effect.truncate and repr(effect.inserts.arrow.to_pylist()) == repr(strange.arrow.to_pylist())
        assert effect.deletes.arrow.to_pylist() == [{"id": 5}]


def test_effects_of_slices_carry_only_the_slice() -> None:
    part = rows(list(range(10_000))).arrow.slice(5_000, 3)
    payload = encode_effects([Effect(1, False, keys([]), RowBlock(part))])
    assert len(payload) < 2_000
    assert decoded(payload, {1: SCHEMA}, {1: ["id"]})[0].inserts.arrow == part


def test_effects_of_dropped_relations_are_left_out() -> None:
    payload = encode_effects([Effect(1, False, keys([1]), rows([1])), Effect(2, False, keys([]), rows([2]))])
    assert [effect.relation_id for effect in decoded(payload, {2: SCHEMA}, {2: ["id"]})] == [2]


def test_key_columns_in_the_order_of_the_key() -> None:
    deletes = rows([1, 2]).arrow.select(["room", "id"])
    payload = encode_effects([Effect(1, False, RowBlock(deletes), rows([]))])
    assert decoded(payload, {1: SCHEMA}, {1: ["room", "id"]})[0].deletes.arrow.equals(deletes)
