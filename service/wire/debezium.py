"""Debezium's envelopes: JSON with or without schemas → changes.

`c`, `r`, `u` are upserts of `after`; `d` deletes by the Kafka key where it is known, else by the key columns of `before` (only
these are real under REPLICA IDENTITY DEFAULT); `t` empties the relation; `m` and tombstones are passed over, and so are
columns that the relation lacks. Where a schema is there, numbers for timestamps and dates follow its semantic types, else
they are microseconds and days.

Source: Debezium's documents, "Change event values" and "Data type mappings" of the PostgreSQL and MySQL connectors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from service.wire.batch import DELETE, TRUNCATE, UPSERT, Batch
from service.wire.columns import DEBEZIUM_READERS
from service.wire.errors import MalformedBody
from service.wire.grammar import DAY, Unreadable, parse_timestamp, shown
from service.wire.json import UNREAD, Definitions, Rows, judge_rows, lines, read_record
from service.wire.judge import Findings, Judged, Plan, assemble, plan_of
from service.wire.schema import RelationDefinition

_OPS = {"c": UPSERT, "r": UPSERT, "u": UPSERT, "d": DELETE, "t": TRUNCATE}
_MESSAGE = "m"

# Microseconds in one unit of the field's number, by semantic type; Nano is the one that is finer.
_UNITS = {
    "io.debezium.time.Timestamp": 1_000,
    "io.debezium.time.MicroTimestamp": 1,
    "io.debezium.time.Date": DAY,
    "org.apache.kafka.connect.data.Timestamp": 1_000,
    "org.apache.kafka.connect.data.Date": DAY,
}
_NANO = "io.debezium.time.NanoTimestamp"
_DECIMALS = ("org.apache.kafka.connect.data.Decimal", "io.debezium.data.VariableScaleDecimal")
# What Debezium sends in place of a large value that an update did not touch.
_UNAVAILABLE = "__debezium_unavailable_value"

Semantics = Mapping[str, str]  # field → semantic type
_NO_SEMANTICS: Semantics = {}
_NO_STRUCTS: Mapping[str, Semantics] = {}
_NONE: tuple[None, Semantics] = (None, _NO_SEMANTICS)


class DebeziumDecoder:
    """Kafka records of one table → changes of one relation.

    Nothing in a record raises: what cannot be read is a bad row, with a reason.
    """

    def __init__(self, relation: str, definition: RelationDefinition) -> None:
        self.relation = relation
        self._plan = plan_of(definition)
        self._wrapping = _Wrapping()

    def decode(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Batch:
        """The records' changes; `index` is the position in `values`. O(bytes); a key is read only where it is needed."""
        envelopes = _Envelopes(self.relation, self._plan)
        wrapping = self._wrapping
        for index, value in enumerate(values):
            known = wrapping.payload(value) if value is not None else None
            if known is not None:
                envelopes.add(index, keys[index], *known)
                continue
            data = read_record(value, index, envelopes.rows)
            if data is UNREAD:
                continue
            if value is not None:
                wrapping.learn(value, data)
            envelopes.add(index, keys[index], *_unwrap(data))
        return envelopes.batch(len(values))


def decode_debezium(body: bytes, relation: str, definitions: Definitions) -> Batch:
    """One relation's changes as application/vnd.debezium+jsonl.

    A line is an envelope, bare or wrapped, or `{"key": …, "value": …}`, or null. A line that is no object is a malformed body.
    """
    envelopes = _Envelopes(relation, plan_of(definitions(relation)))
    index = -1
    for index, (line, data) in enumerate(lines(body)):
        if data is not None and type(data) is not dict:
            raise MalformedBody(f"line {line} holds {shown(data)}, not an envelope", line)
        key = None
        if data is not None and "value" in data and "op" not in data and "payload" not in data:
            key, data = data.get("key"), data["value"]
        envelopes.add(index, key, *_unwrap(data))
    return envelopes.batch(index + 1)


class _Envelopes:
    """Envelopes of one relation, as they come in."""

    def __init__(self, relation: str, plan: Plan) -> None:
        self.rows = Rows(relation, plan)
        self.semantics: list[Semantics] = []  # of each of `rows`
        self.ignored = 0

    def add(self, index: int, key: Any, payload: Any, structs: Mapping[str, Semantics]) -> None:
        """One record. `key` is bytes (read only if needed), an object or None; `structs` are the semantics of `before` and `after`."""
        if payload is None:
            self.ignored += 1
            return
        if type(payload) is not dict or "op" not in payload:
            self.rows.refuse(index, None, 'no Debezium envelope: it has no "op" (are the records unwrapped by a transformation?)')
            return
        given = payload["op"]
        if given == _MESSAGE:
            self.ignored += 1
            return
        op = _OPS.get(given) if type(given) is str else None
        if op is None:
            self.rows.refuse(index, "op", f"got {shown(given)}, want one of Debezium's c, r, u, d, t, m")
        elif op == UPSERT:
            after = payload.get("after")
            if type(after) is not dict:
                self.rows.refuse(index, None, f'"after" is {shown(after)}, not a row')
                return
            self._take(index, op, after, structs.get("after", _NO_SEMANTICS))
        elif op == DELETE:
            self._delete(index, key, payload.get("before"), structs.get("before", _NO_SEMANTICS))
        else:
            self._take(index, op, {}, _NO_SEMANTICS)

    def _take(self, index: int, op: int, row: dict[str, Any], semantics: Semantics) -> None:
        self.rows.add(index, op, row)
        self.semantics.append(semantics)

    def _delete(self, index: int, key: Any, before: Any, semantics: Semantics) -> None:
        known, key_semantics = _read_key(key)
        row = self._key_columns(known)
        if row is not None:
            semantics = key_semantics
        else:
            row = self._key_columns(before)
        if row is None:
            self.rows.refuse(index, None, "no-key")
        else:
            self._take(index, DELETE, row, semantics)

    def _key_columns(self, data: Any) -> dict[str, Any] | None:
        """The key columns of a struct; None if one of them is not there."""
        if type(data) is not dict:
            return None
        row = {name: data.get(name) for name in self.rows.plan.key}
        return None if None in row.values() else row

    def batch(self, sent: int) -> Batch:
        return assemble(sent, self.ignored, [self._judged()], self.rows.refused)

    def _judged(self) -> Judged:
        rows = self.rows
        kinds = list({id(semantics): semantics for semantics in self.semantics}.values())

        def settle(place: int, values: list[Any]) -> list[Any]:
            return self._settle(place, values, kinds)

        return judge_rows(rows.plan, rows.relation, rows.ops, rows.index, rows.rows, Findings(), DEBEZIUM_READERS, settle)

    def _settle(self, place: int, values: list[Any], kinds: Sequence[Semantics]) -> list[Any]:
        """One column's values with their semantic types applied; `kinds` are the distinct ones of `semantics`."""
        column = self.rows.plan.columns[place]
        if column.type == "string" and _UNAVAILABLE in values:
            values = [_NOT_SENT if value == _UNAVAILABLE else value for value in values]
        if not any(column.name in semantics for semantics in kinds):
            return values
        settlers = {id(semantics): _settler(column.type, semantics.get(column.name)) for semantics in kinds}
        return [
            value if value is None or (settle := settlers[id(semantics)]) is None else settle(value)
            for value, semantics in zip(values, self.semantics, strict=True)
        ]


_NOT_SENT = Unreadable("the value was not sent (an unchanged large value): give the table REPLICA IDENTITY FULL")
_BYTES = Unreadable("got the bytes of a Decimal: set the connector's decimal.handling.mode to double")


def _settler(kind: str, semantic: str | None) -> Callable[[Any], Any] | None:
    """How a value of a semantic type becomes one of a column's type; None: as it is."""
    if semantic in _DECIMALS:
        return lambda value: value if type(value) in (int, float) else _BYTES
    if semantic == _NANO:
        return lambda value: _scaled(value, kind, 1, 1_000)
    unit = _UNITS.get(semantic or "")
    if unit is not None and kind in ("timestamp", "date") and not (kind == "date" and unit == DAY):
        return lambda value: _scaled(value, kind, unit, 1)
    if kind == "date" and semantic in ("io.debezium.time.IsoDate", "io.debezium.time.IsoTimestamp", "io.debezium.time.ZonedTimestamp"):
        return _date_of_text
    return None


def _scaled(value: Any, kind: str, times: int, by: int) -> Any:
    """A number in another unit, exactly or not at all."""
    if type(value) is not int or kind not in ("timestamp", "date"):
        return value
    micros, rest = divmod(value * times, by)
    if rest:
        return Unreadable(f"{value} nanoseconds are no whole number of microseconds")
    if kind == "timestamp":
        return micros
    days, rest = divmod(micros, DAY)
    return Unreadable(f"{value} is not the midnight of a day") if rest else days


def _date_of_text(value: Any) -> Any:
    """Debezium's ISO texts carry an offset, dates too: `2026-01-01Z`."""
    if type(value) is not str:
        return value
    if "T" not in value:
        return value.removesuffix("Z")
    try:
        return _scaled(parse_timestamp(value), "date", 1, 1)
    except ValueError:
        return value


def _unwrap(data: Any) -> tuple[Any, Mapping[str, Semantics]]:
    """Payload and semantics by struct, of a value that may be wrapped in `schema` and `payload`."""
    if type(data) is dict and "payload" in data and "schema" in data:
        return data["payload"], _structs(data["schema"])
    return data, _NO_STRUCTS


def _read_key(key: Any) -> tuple[Any, Semantics]:
    """A Kafka key's struct and its semantics; (None, …) if it is no JSON object."""
    if isinstance(key, bytes | bytearray | memoryview):
        try:
            key = orjson.loads(key)
        except orjson.JSONDecodeError:
            return _NONE
    if type(key) is dict and key.keys() == {"schema", "payload"}:
        return key["payload"], _semantics(key["schema"])
    return key, _NO_SEMANTICS


def _structs(schema: Any) -> Mapping[str, Semantics]:
    """Semantics of `before` and `after`, from an envelope's schema."""
    return {field["field"]: _semantics(field) for field in _fields(schema) if field.get("field") in ("before", "after")}


def _semantics(struct: Any) -> Semantics:
    return {field["field"]: field["name"] for field in _fields(struct) if isinstance(field.get("name"), str) and "field" in field}


def _fields(schema: Any) -> list[dict[str, Any]]:
    fields = schema.get("fields") if type(schema) is dict else None
    return [field for field in fields if type(field) is dict] if type(fields) is list else []


class _Wrapping:
    """The `{"schema":…,"payload":` that records of one table have in common, so that it is read once and not a record.

    What starts with a known wrapping W and has a whole JSON value between it and a closing brace is the object that W begins.
    """

    _CUT = b'"payload":'
    _MOST = 16  # versions of a table's schema that are remembered

    def __init__(self) -> None:
        self._known: dict[bytes, Mapping[str, Semantics]] = {}
        self._last = b""

    def payload(self, value: bytes) -> tuple[Any, Mapping[str, Semantics]] | None:
        """Payload and semantics if the wrapping is known."""
        if not self._known:
            return None
        if not value.startswith(self._last):
            self._last = next((wrapping for wrapping in self._known if value.startswith(wrapping)), self._last)
            if not value.startswith(self._last):
                return None
        if not value.endswith(b"}"):
            return None
        try:
            return orjson.loads(memoryview(value)[len(self._last) : -1]), self._known[self._last]
        except orjson.JSONDecodeError:
            return None

    def learn(self, value: bytes, data: Any) -> None:
        """Remember the wrapping of a value that was read as `data`."""
        if type(data) is not dict or data.keys() != {"schema", "payload"}:
            return
        # The first one may lie inside the schema; then what follows is no whole value, and nothing is learned.
        end = value.find(self._CUT) + len(self._CUT)
        wrapping = bytes(value[:end])
        try:
            if orjson.loads(wrapping + b"null}") != {"schema": data["schema"], "payload": None}:
                return
        except orjson.JSONDecodeError:
            return
        if len(self._known) >= self._MOST:
            self._known.clear()
        self._known[wrapping] = _structs(data["schema"])
        self._last = wrapping
