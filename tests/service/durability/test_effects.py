"""Effects: what a batch did comes back from its bytes, value by value, in the JSON form and in Arrow's."""

from __future__ import annotations

import base64
import contextlib
import math
import sqlite3
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livejoin.wire.batch import RowBlock
from service.durability.database import LogRow, replay
from service.durability.effects import Effect, EffectsShape, decode_effects, encode_effects
from service.durability.folder import DATABASE, DamagedFolder
from service.durability.log import Log

SCHEMA = pa.schema([
    ("id", pa.int64()), ("t", pa.utf8()), ("at", pa.timestamp("us", "UTC")), ("day", pa.date32()), ("x", pa.float64()), ("ok", pa.bool_()),
])  # fmt: skip
KEYED = {3: ["id"], 4: ["day", "t"], 7: ["t", "at", "x", "ok", "id", "day"]}
SCHEMAS = dict.fromkeys(KEYED, SCHEMA)
INT, DATE = st.integers(-(2**63), 2**63 - 1), st.integers(-719_162, 2_932_896)
TIME = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=9) | st.sampled_from(["", '"', "\\", "\0", "é🦉", "x" * 300])
VALUES = dict(zip(SCHEMA.names, (INT, TEXT, TIME, DATE, st.floats(), st.booleans()), strict=True))
ROW = st.tuples(*(st.none() | values for values in VALUES.values()))
PHYSICAL = {pa.timestamp("us", "UTC"): pa.int64(), pa.date32(): pa.int32()}


def schema_of(names: list[str]) -> pa.Schema:
    return pa.schema([SCHEMA.field(name) for name in names])


def few(values: list[tuple[Any, ...]], names: list[str] = SCHEMA.names) -> RowBlock:
    return RowBlock.few(values, pa.struct(schema_of(names)))


def arrow(values: list[tuple[Any, ...]], names: list[str] = SCHEMA.names, before: int = 0) -> RowBlock:
    """As a slice, if something lies before it."""
    return RowBlock(few([tuple([None] * len(names))] * before + values, names).arrow.slice(before))


def emitted(rows: RowBlock) -> str:
    """The physical values: NaN is like NaN, -0.0 is not 0.0."""
    if rows.values is not None:
        return repr(rows.values)
    rows.arrow.validate(full=True)
    columns = [column.cast(PHYSICAL.get(column.type, column.type)).to_pylist() for column in rows.arrow.columns]
    return repr(list(zip(*columns, strict=True)))


def schema_in(rows: RowBlock) -> pa.Schema:
    return rows.arrow.schema


def decoded(payload: bytes, schemas: Mapping[int, pa.Schema], keys: Mapping[int, list[str]]) -> list[Effect]:
    return decode_effects(payload, {id_: EffectsShape.of(schema, keys[id_]) for id_, schema in schemas.items()})


def come_back(effects: list[Effect]) -> list[Effect]:
    payload = encode_effects(effects)
    found = decoded(payload, SCHEMAS, KEYED)
    assert len(payload) % 8 == 0 and encode_effects(effects) == payload
    assert [(one.relation_id, one.truncate) for one in found] == [(one.relation_id, one.truncate) for one in effects]
    for one, other in zip(found, effects, strict=True):
        assert emitted(one.deletes) == emitted(other.deletes) and emitted(one.inserts) == emitted(other.inserts)
        assert schema_in(one.deletes) == schema_of(KEYED[one.relation_id]) and schema_in(one.inserts) == SCHEMA
    return found


@st.composite
def an_effect(draw: st.DrawFn) -> Effect:
    relation_id = draw(st.sampled_from(list(KEYED)))
    names = KEYED[relation_id]
    keys = draw(st.lists(st.tuples(*(VALUES[name] for name in names)), max_size=3))
    inserts = draw(st.lists(ROW, max_size=3))
    one = few(keys, names) if draw(st.booleans()) else arrow(keys, names, draw(st.integers(0, 9)))
    other = few(inserts) if draw(st.booleans()) else arrow(inserts, before=draw(st.integers(0, 9)))
    return Effect(relation_id, draw(st.booleans()), one, other)


@given(st.lists(an_effect(), max_size=4))
def test_any_effects_come_back(effects: list[Effect]) -> None:
    come_back(effects)


EDGES: dict[str, list[Any]] = {
    "id": [-(2**63), 2**63 - 1, 2**53 + 1, 0],
    "t": ["", "\0", '"\\/\b\n\u2028\x7f', "é🦉\uffff", "x" * 70_000],
    "at": [-62_135_596_800_000_000, 253_402_300_799_999_999, -1, 2**63 - 1, -(2**63)],
    "day": [-719_162, 2_932_896, -(2**31), 2**31 - 1],
    "x": [0.0, -0.0, 5e-324, -1.7976931348623157e308, 0.1, 1e16, 2.0**53 + 2, math.nan, math.inf, -math.inf],
    "ok": [True, False],
}


@pytest.mark.parametrize("name", EDGES)
@pytest.mark.parametrize("form", [few, arrow])
def test_every_type_at_its_edges(name: str, form: Any) -> None:
    position = SCHEMA.names.index(name)
    for value in [*EDGES[name], None]:
        row = tuple(value if i == position else None for i in range(len(SCHEMA)))
        (one,) = come_back([Effect(3, False, form([(1,)], ["id"]), form([row]))])
        in_json = form is few and not (isinstance(value, float) and not math.isfinite(value))
        assert (one.inserts.values is not None) == (one.deletes.values is not None) == in_json
        if in_json:
            assert [type(found) for found in one.inserts.values[0]] == [type(given) for given in row]
    come_back([Effect(3, False, form([(i,) for i in range(9)], ["id"]), form([(i, None, i, None, i / 7, None) for i in range(99)]))])


OTHERS = pa.schema([("key", pa.binary()), ("at", pa.time64("us")), ("note", pa.utf8())])


@given(
    st.lists(st.tuples(st.binary(max_size=9), st.none() | st.integers(0, 86_399_999_999), st.none() | TEXT), min_size=1, max_size=3),
    st.booleans(),
)
def test_bytes_and_times_come_back(rows: list[tuple[Any, ...]], as_arrow: bool) -> None:
    """All bytes, which JSON has as text of as many characters, beside a table that knows the columns."""
    keys = pa.schema([OTHERS.field("key")])
    given_keys, given_rows = (RowBlock.few(values, pa.struct(of)) for values, of in (([row[:1] for row in rows], keys), (rows, OTHERS)))
    effect = Effect(3, False, given_keys, RowBlock(given_rows.arrow) if as_arrow else given_rows)
    (one,) = decode_effects(encode_effects([effect]), {3: EffectsShape.of(OTHERS, ["key"])})
    assert (one.inserts.values is None) == as_arrow and one.inserts.arrow.equals(given_rows.arrow)
    assert one.deletes.arrow.equals(given_keys.arrow)
    every = RowBlock.few([(bytes(range(256)), None, None)], pa.struct(OTHERS))
    (one,) = decode_effects(
        encode_effects([Effect(3, False, RowBlock.few([], pa.struct(keys)), every)]), {3: EffectsShape.of(OTHERS, ["key"])}
    )
    assert one.inserts.values == [(bytes(range(256)), None, None)]


def test_a_row_that_is_alone_takes_few_bytes() -> None:
    payload = encode_effects([Effect(3, False, few([], ["id"]), few([(17, "room", 0, 0, 0.5, True)]))])
    assert len(payload) < 24 + 40 and b'[[17,"room",0,0,0.5,true]]' in payload
    assert len(encode_effects([Effect(3, False, few([(17,)], ["id"]), few([]))])) == 24 + 8


@pytest.mark.parametrize("nothing", [few([]), arrow([])])
@pytest.mark.parametrize("no_keys", [few([], ["id"]), arrow([], ["id"])])
def test_no_rows_take_no_bytes_and_any_form(nothing: RowBlock, no_keys: RowBlock) -> None:
    for truncate in (False, True):
        (one,) = come_back([Effect(3, truncate, no_keys, nothing)])
        assert len(encode_effects([one])) == 24 and one.inserts.num_rows == one.deletes.num_rows == 0
    (one,) = come_back([Effect(3, True, no_keys, few([(1, "a", None, None, None, None)]))])
    assert one.inserts.values is not None
    (one,) = come_back([Effect(3, True, no_keys, arrow([(1, "a", None, None, None, None)]))])
    assert one.inserts.values is None


def test_several_relations_in_their_order() -> None:
    """Each of its own form, with the lengths of every padding, one relation twice, one dropped since."""
    row = (1, "a", 2, 3, 0.5, True)
    effects = [Effect(7, False, few([], KEYED[7]), few([(1, "x" * n, None, None, None, None)])) for n in range(9)]
    effects += [Effect(4, True, arrow([(5, "k")], KEYED[4]), few([row])), Effect(3, False, few([(8,)], ["id"]), arrow([row, row]))]
    effects += [Effect(4, False, few([(6, "")], KEYED[4]), few([])), Effect(3, True, few([], ["id"]), few([]))]
    come_back(effects)
    payload = encode_effects(effects)
    for dropped in KEYED:
        known = {id_: schema for id_, schema in SCHEMAS.items() if id_ != dropped}
        found = decoded(payload, known, KEYED)
        assert [one.relation_id for one in found] == [one.relation_id for one in effects if one.relation_id != dropped]
        assert [emitted(one.inserts) for one in found] == [emitted(one.inserts) for one in effects if one.relation_id != dropped]
    assert decoded(payload, {}, {}) == []


PAIR = pa.schema([("id", pa.int64()), ("t", pa.utf8())])
OLD_JSON = b"\3\0\0\0\2\0\0\0\5\0\0\0\0\0\0\0\x12\0\0\0\0\0\0\0[[7]]\0\0\0" + b'[[1,"a"],[2,null]]' + bytes(6)
OLD_ARROW = zlib.decompress(base64.b85decode(
    "c-muTU|?Vb;sp#)zzCuK13?Fn7J&-$Fo-d*F|aal09iaB0cI8k2_Pi^)5pLC<nu7F099}Sc{WfvCI$pRW}^cEBsL=!wd_!ug8|{b6GXVr0Ehc>u(*$v2=@t~1{2s0"
    "i2V?tfhG_0H@bhA(9|*F5Qnj0{6r`X0AG0xhX"
))  # fmt: skip


def test_rows_of_earlier_releases_stay_readable() -> None:
    """As they were written: a folder may hold such rows for ever. A byte more or less is another format."""
    (one,) = decoded(OLD_JSON, {3: PAIR}, {3: ["id"]})
    assert (one.relation_id, one.truncate, emitted(one.deletes), emitted(one.inserts)) == (3, False, "[(7,)]", "[(1, 'a'), (2, None)]")
    assert encode_effects([one]) == OLD_JSON
    (one,) = decoded(OLD_ARROW, {3: PAIR}, {3: ["id"]})
    assert (one.relation_id, one.truncate, emitted(one.deletes), emitted(one.inserts)) == (3, True, "[(7,), (8,)]", "[(1, 'a'), (2, None)]")
    both = decoded(OLD_ARROW + OLD_JSON + OLD_ARROW, {3: PAIR}, {3: ["id"]})
    assert [emitted(one.deletes) for one in both] == ["[(7,), (8,)]", "[(7,)]", "[(7,), (8,)]"]


@pytest.mark.parametrize("payload", [OLD_JSON, OLD_ARROW])
def test_bytes_that_end_too_early(payload: bytes) -> None:
    """Whole effects, then an error: no part of one. Where only padding is missing, all is there."""
    wanted = [emitted(one.inserts) for one in decoded(payload, {3: PAIR}, {3: ["id"]})]
    for length in range(1, len(payload)):
        cut = payload + payload[:length]
        try:
            found = [emitted(one.inserts) for one in decoded(cut, {3: PAIR}, {3: ["id"]})]
        except Exception:
            continue
        assert found == wanted * 2 and payload[length:] == bytes(len(payload) - length)
        assert length > len(payload) - 8


def test_damage_in_the_log_is_never_taken_for_rows(tmp_path: Path) -> None:
    """The checksum of a row of the log stands before these bytes: not every wrong bit is one that they could tell."""
    log = Log(tmp_path)
    for version, payload in enumerate((OLD_JSON, OLD_ARROW), 1):
        log.append([LogRow(version, "pms", "run", version, payload)])
    log.commit()
    log.close()
    path = tmp_path / DATABASE
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        assert [row.payload for row in replay(db, path, 0, 0, 2)] == [OLD_JSON, OLD_ARROW]
        db.execute("BEGIN")
        for version, payload in enumerate((OLD_JSON, OLD_ARROW), 1):
            flips = (payload[:at] + bytes([payload[at] ^ 1 << at % 8]) + payload[at + 1 :] for at in range(len(payload)))
            cuts = (payload[:at] for at in range(0, len(payload), 7))
            for wrong in (*flips, *cuts, payload + bytes(8), payload * 2):
                db.execute("UPDATE log SET payload = ? WHERE version = ?", (wrong, version))
                with pytest.raises(DamagedFolder, match=f"wrong checksum of version {version}"):
                    list(replay(db, path, version - 1, 0, 2))
            db.execute("UPDATE log SET payload = ? WHERE version = ?", (payload, version))
        db.execute("ROLLBACK")
