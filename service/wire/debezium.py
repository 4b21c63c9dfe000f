"""Converts Debezium's envelopes, JSON with or without schemas, to changes.

`c`, `r`, `u` are upserts of `after`; `d` deletes by the Kafka key if it is known, otherwise by the key columns of `before` (only these are
reliable under REPLICA IDENTITY DEFAULT); `t` empties the relation. A key that is not a struct (ExtractField) does not say which column it
is, so it is unknown. Ignored: tombstones, messages (`m`), transaction markers, heartbeats, and columns that the relation lacks. With a
schema, values follow its semantic types (`semantics`); without one, numbers in timestamp and time columns are microseconds, in date columns
days. Everything else is a bad record: rows unwrapped by ExtractNewRecordState (their deletes could not be recognized), schema changes,
MongoDB's documents.

Source: Debezium's documents, "Change event values" and "Data type mappings" of the PostgreSQL and MySQL connectors.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import orjson

from service.wire.batch import DELETE, TRUNCATE, UPSERT, Batch
from service.wire.columns import DEBEZIUM_READERS
from service.wire.errors import MalformedBody
from service.wire.grammar import Unreadable, shown
from service.wire.json import Definitions, Rows, judge_rows, lines, no_json
from service.wire.judge import Findings, Judged, assemble
from service.wire.room import UNBOUNDED, Room
from service.wire.schema import RelationDefinition, RowRules
from service.wire.semantics import NO_SEMANTICS, OPEN_ENDS, Semantics, Settler, semantics_of, settler, structs_of

_UPSERTS = ("c", "u", "r")
_MESSAGE = "m"
_NO_STRUCTS: Mapping[str, Semantics] = {}
# Debezium sends this instead of a large value that an update did not change; for bytes, in base64.
_UNAVAILABLE = "__debezium_unavailable_value"
_UNAVAILABLE_IN = {"string": _UNAVAILABLE, "json": _UNAVAILABLE, "bytes": base64.b64encode(_UNAVAILABLE.encode()).decode()}
_NOT_SENT = Unreadable("the value was not sent (an unchanged large value): give the table REPLICA IDENTITY FULL")

Meaning = TypeVar("Meaning")


class DebeziumDecoder:
    """Converts Kafka records of one table to changes of one relation.

    No record raises an exception: one that cannot be read is a bad row, with a reason.
    """

    def __init__(self, relation: str, definition: RelationDefinition) -> None:
        self.relation = relation
        self._rules = definition.rules
        self._values = _Wrapping(structs_of, _NO_STRUCTS)
        self._keys = _Wrapping(semantics_of, NO_SEMANTICS)

    def decode(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Batch:
        """Return the records' changes; `index` is the position in `values`. O(bytes); a key is read only if it is needed."""
        envelopes = _Envelopes(self.relation, self._rules, self._keys)
        read = self._values.read
        for index, value in enumerate(values):
            if value is None:
                envelopes.ignored += 1
                continue
            try:
                payload, structs = read(value)
            except orjson.JSONDecodeError as error:
                envelopes.rows.refuse(index, None, no_json(value, error))
                continue
            envelopes.add(index, keys[index], payload, structs)
        return envelopes.batch(len(values))


def decode_debezium(body: bytes, relation: str, definitions: Definitions, room: Room = UNBOUNDED) -> Batch:
    """Decode one relation's changes as application/vnd.debezium+jsonl.

    A line is an envelope, bare or wrapped, or `{"key": …, "value": …}`, or null. Any other line makes a malformed body.
    """
    envelopes = _Envelopes(relation, definitions(relation).rules, _Wrapping(semantics_of, NO_SEMANTICS))
    index = -1
    for index, (line, data) in enumerate(lines(body, room)):
        if data is not None and type(data) is not dict:
            raise MalformedBody(f"line {line} is {shown(data)}, not an envelope", line)
        key = None
        if data is not None and "value" in data and "op" not in data and "payload" not in data:
            key, data = data.get("key"), data["value"]
        envelopes.add(index, key, *_unwrapped(data, structs_of, _NO_STRUCTS))
    room.take(envelopes.rows.rules.width * (index + 1))
    return envelopes.batch(index + 1)


class _Envelopes:
    """Envelopes of one relation, in the order of arrival."""

    def __init__(self, relation: str, rules: RowRules, keys: _Wrapping[Semantics]) -> None:
        self.rows = Rows(relation, rules)
        self.semantics: list[Semantics] = []  # one for each of `rows`
        self.ignored = 0
        self._keys = keys

    def add(self, index: int, key: Any, payload: Any, structs: Mapping[str, Semantics]) -> None:
        """Add one record. `key` is bytes (read only if needed), an object or None; `structs` are the semantics of `before` and `after`."""
        if type(payload) is dict and payload.get("op") in _UPSERTS and type(after := payload.get("after")) is dict:
            self._take(index, UPSERT, after, structs.get("after", NO_SEMANTICS))
        else:
            self._add_other(index, key, payload, structs)

    def _add_other(self, index: int, key: Any, payload: Any, structs: Mapping[str, Semantics]) -> None:
        """Add anything other than a valid upsert."""
        if payload is None:
            self.ignored += 1
        elif type(payload) is not dict:
            self.rows.refuse(index, None, f"the value is {shown(payload)}, not an object")
        elif "op" not in payload:
            if _is_marker(payload):
                self.ignored += 1
            else:
                self.rows.refuse(index, None, _no_envelope(payload))
        elif (op := payload["op"]) == "d":
            self._delete(index, key, payload.get("before"), structs.get("before", NO_SEMANTICS))
        elif op == "t":
            self._take(index, TRUNCATE, {}, NO_SEMANTICS)
        elif op == _MESSAGE:
            self.ignored += 1
        elif op in _UPSERTS:
            after = payload.get("after")
            hint = " (documents, as of MongoDB, are not supported)" if type(after) is str else ""
            self.rows.refuse(index, None, f'"after" is {shown(after)}, not a row{hint}')
        else:
            self.rows.refuse(index, "op", f"got {shown(op)}, expected one of Debezium's c, r, u, d, t, m")

    def _take(self, index: int, op: int, row: dict[str, Any], semantics: Semantics) -> None:
        self.rows.add(index, op, row)
        self.semantics.append(semantics)

    def _delete(self, index: int, key: Any, before: Any, semantics: Semantics) -> None:
        known, key_semantics = self._read_key(key)
        row = self._key_columns(known)
        if row is not None:
            semantics = key_semantics
        else:
            row = self._key_columns(before)
        if row is None:
            self.rows.refuse(index, None, "no-key")
        else:
            self._take(index, DELETE, row, semantics)

    def _read_key(self, key: Any) -> tuple[Any, Semantics]:
        """Return a Kafka key's struct and its semantics; None if it is not JSON."""
        if type(key) is not bytes:
            return _unwrapped(key, semantics_of, NO_SEMANTICS)
        try:
            return self._keys.read(key)
        except orjson.JSONDecodeError:
            return None, NO_SEMANTICS

    def _key_columns(self, data: Any) -> dict[str, Any] | None:
        """Return the key columns of a struct; None if one of them is missing."""
        if type(data) is not dict:
            return None
        row = {name: data.get(name) for name in self.rows.rules.key}
        return None if None in row.values() else row

    def batch(self, sent: int) -> Batch:
        return assemble(sent, self.ignored, [self._judged()], self.rows.refused)

    def _judged(self) -> Judged:
        rows, all_of = self.rows, self.semantics
        if all_of and all_of.count(all_of[0]) == len(all_of):
            kinds = all_of[:1]
        else:
            kinds = list({id(semantics): semantics for semantics in all_of}.values())

        def settle(ordinal: int, values: list[Any]) -> list[Any]:
            return self._settle(ordinal, values, kinds)

        return judge_rows(rows.rules, rows.relation, rows.ops, rows.index, rows.rows, Findings(), DEBEZIUM_READERS, settle)

    def _settle(self, ordinal: int, values: list[Any], kinds: Sequence[Semantics]) -> list[Any]:
        """Return one column's values with their semantic types applied; `kinds` are the distinct ones of `semantics`."""
        column = self.rows.rules.columns[ordinal]
        if (unavailable := _UNAVAILABLE_IN.get(column.type)) is not None and unavailable in values:
            values = [_NOT_SENT if value == unavailable else value for value in values]
        if column.type in ("timestamp", "date") and any(number in values for number in OPEN_ENDS):
            values = [OPEN_ENDS.get(value, value) if type(value) is int else value for value in values]
        settlers: dict[int, Settler | None] = {id(kind): settler(column.kind, kind.get(column.name)) for kind in kinds}
        if not any(settlers.values()):
            return values
        if len(kinds) == 1:
            (settle,) = settlers.values()
            return list(map(settle, values)) if settle else values
        return [
            value if value is None or (settle := settlers[id(semantics)]) is None else settle(value)
            for value, semantics in zip(values, self.semantics, strict=True)
        ]


def _is_marker(payload: dict[str, Any]) -> bool:
    """Return whether the payload is the beginning or end of a transaction, or a heartbeat."""
    if payload.keys() == {"ts_ms"}:
        return True
    return payload.get("status") in ("BEGIN", "END") and payload.keys() >= {"id", "event_count", "data_collections"}


def _no_envelope(payload: dict[str, Any]) -> str:
    """Return why a value has no "op", and what to do."""
    if "ddl" in payload and "databaseName" in payload:
        return "a schema change of the source database, not a row change: remove the topic of schema changes from the file"
    return 'not a Debezium envelope: "op" is missing (if the connector uses the transformation ExtractNewRecordState, remove it)'


def _unwrapped(data: Any, meaning: Callable[[Any], Meaning], none: Meaning) -> tuple[Any, Meaning]:
    """Return the payload, and the meaning of the schema, of a possibly wrapped value."""
    return (data["payload"], meaning(data["schema"])) if _is_wrapped(data) else (data, none)


def _is_wrapped(data: Any) -> bool:
    """Return whether the value has a `schema` and a `payload` that are objects; columns of a row with these names are not."""
    return type(data) is dict and "payload" in data and "schema" in data and type(data["schema"]) in (dict, type(None))


class _Wrapping(Generic[Meaning]):
    """The prefix `{"schema":…,"payload":` that keys or values of one table share: it is parsed once, not for every record.

    A value that starts with a known prefix W, continues with a complete JSON value, and ends with a closing brace is the object that W
    begins.
    """

    _CUT = b'"payload":'
    _MOST = 16  # the number of schema versions of a table that are cached

    def __init__(self, meaning: Callable[[Any], Meaning], none: Meaning) -> None:
        self._meaning_of = meaning
        self._none = none
        self._known: dict[bytes, Meaning] = {}
        self._last = b""  # the known prefix that was used last
        self._meaning = none  # the meaning of `_last`

    def read(self, value: bytes) -> tuple[Any, Meaning]:
        """Return the payload, and the meaning of the schema; raises orjson.JSONDecodeError."""
        if self._known and self._is_known(value) and value.endswith(b"}"):
            try:
                return orjson.loads(memoryview(value)[len(self._last) : -1]), self._meaning
            except orjson.JSONDecodeError:
                pass  # parsing the whole value reports the error
        data = orjson.loads(value)
        if _is_wrapped(data):
            self._learn(value, data)
        return _unwrapped(data, self._meaning_of, self._none)

    def _is_known(self, value: bytes) -> bool:
        if value.startswith(self._last):
            return True
        for wrapping, meaning in self._known.items():
            if value.startswith(wrapping):
                self._last, self._meaning = wrapping, meaning
                return True
        return False

    def _learn(self, value: bytes, data: dict[str, Any]) -> None:
        """Remember the prefix of a value that was read as `data`."""
        # The first match may lie inside the schema; then no complete value follows, and nothing is learned.
        wrapping = value[: value.find(self._CUT) + len(self._CUT)]
        try:
            if orjson.loads(wrapping + b"null}") != {"schema": data["schema"], "payload": None}:
                return
        except (orjson.JSONDecodeError, RecursionError):  # comparing deeply nested values exceeds Python's limit
            return
        if len(self._known) >= self._MOST:
            self._known.clear()
        self._last, self._meaning = wrapping, self._meaning_of(data["schema"])
        self._known[wrapping] = self._meaning
