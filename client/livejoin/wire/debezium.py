"""Converts Debezium's envelopes, JSON with or without schemas, to changes.

`c`, `r`, `u` are upserts of `after`; `d` deletes by the Kafka key if it is known, otherwise by the key columns of `before` (only these are
reliable under REPLICA IDENTITY DEFAULT); a tombstone, whose `d` may have been compacted away, deletes by the Kafka key; `t` empties the
relation. Ignored: tombstones without a key, messages (`m`), transaction markers, heartbeats, and columns that the relation lacks. With a
schema, values follow its semantic types (`semantics`), and it must have the ends of intervals; without one, numbers in timestamp and time
columns are microseconds, in date columns days. Everything else is a bad record: rows unwrapped by ExtractNewRecordState (their deletes
could not be recognized), schema changes, MongoDB's documents.

Source: Debezium's documents, "Change event values" and "Data type mappings" of the PostgreSQL and MySQL connectors.
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import orjson

from livejoin.wire.batch import DELETE, TRUNCATE, UPSERT, Batch
from livejoin.wire.budget import UNBOUNDED, Budget
from livejoin.wire.columns import DEBEZIUM_READERS, mask_of
from livejoin.wire.errors import MalformedBody
from livejoin.wire.grammar import Unreadable, shown
from livejoin.wire.json import Definitions, FlawedObject, JsonRows, fault_of, lines, validate_rows
from livejoin.wire.schema import RelationDefinition, RowRules
from livejoin.wire.semantics import NO_SEMANTICS, Semantics, Settler, has_open_ends, settler, structs_of
from livejoin.wire.validate import Findings, ValidatedRows, assemble
from livejoin.wire.wrapping import Keys, Wrapping, unwrapped

_UPSERTS = ("c", "u", "r")
_MESSAGE = "m"
_NO_STRUCTS: Mapping[str, Semantics] = {}
# Debezium sends this instead of a large value that an update did not change; for bytes, in base64.
_UNAVAILABLE = "__debezium_unavailable_value"
_UNAVAILABLE_IN = {"string": _UNAVAILABLE, "json": _UNAVAILABLE, "bytes": base64.b64encode(_UNAVAILABLE.encode()).decode()}
_NO_END = "the schema of the record lacks this end of an interval, and null would mean unbounded: was the column renamed or excluded?"
_NOT_SENT = Unreadable("the value was not sent (an unchanged large value): give the table REPLICA IDENTITY FULL")


class DebeziumDecoder:
    """Converts Kafka records of one table to changes of one relation.

    No record raises an exception: one that cannot be read is a bad row, with a reason.
    """

    def __init__(self, relation: str, definition: RelationDefinition) -> None:
        self.relation = relation
        self._rules = definition.rules
        self._values = Wrapping(structs_of, _NO_STRUCTS)
        self._keys = Keys(self._rules)

    def decode(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Batch:
        """Return the records' changes; `index` is the position in `values`. O(bytes); a key is read only if it is needed."""
        envelopes = _Envelopes(self.relation, self._rules, self._keys)
        read = self._values.read
        for index, value in enumerate(values):
            try:
                payload, structs = (None, _NO_STRUCTS) if value is None else read(value)
            except orjson.JSONDecodeError as error:
                envelopes.rows.refuse(index, *fault_of(value, error))
                continue
            envelopes.add(index, keys[index], payload, structs)
        batch = envelopes.batch(len(values))
        batch.lacking = envelopes.lacking()
        return batch


def decode_debezium(body: bytes, relation: str, definitions: Definitions, room: Budget = UNBOUNDED) -> Batch:
    """Decode one relation's changes as application/vnd.debezium+jsonl.

    A line is an envelope, bare or wrapped, or `{"key": …, "value": …}`, or null. Any other line makes a malformed body.
    """
    rules = definitions(relation).rules
    envelopes = _Envelopes(relation, rules, Keys(rules))
    index = -1
    for index, (line, data) in enumerate(lines(body, room)):
        if type(data) is FlawedObject:
            envelopes.rows.refuse(index, data.name, data.reason)
            continue
        if data is not None and type(data) is not dict:
            raise MalformedBody(f"line {line} is {shown(data)}, not an envelope", line)
        key = None
        if data is not None and "value" in data and "op" not in data and "payload" not in data:
            key, data = data.get("key"), data["value"]
        envelopes.add(index, key, *unwrapped(data, structs_of, _NO_STRUCTS))
    room.take(envelopes.rows.rules.width * (index + 1))
    return envelopes.batch(index + 1)


class _Envelopes:
    """Envelopes of one relation, in the order of arrival."""

    def __init__(self, relation: str, rules: RowRules, keys: Keys) -> None:
        self.rows = JsonRows(relation, rules)
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
            self._bury(index, key)
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
        self._keys.deleted = None

    def _delete(self, index: int, key: Any, before: Any, semantics: Semantics) -> None:
        row, key_semantics = self._keys.read(key)
        if row is not None:
            semantics = key_semantics
        else:
            row = self._keys.columns_of(before)
        if row is None:
            self.rows.refuse(index, None, "no-key")
        else:
            self._take(index, DELETE, row, semantics)
            self._keys.deleted = key

    def _bury(self, index: int, key: Any) -> None:
        """Take a tombstone: it deletes by its key, unless this cannot be read, or its delete comes right before it."""
        try:
            row, semantics = (None, NO_SEMANTICS) if key == self._keys.deleted else self._keys.read(key)
        except RecursionError:  # of keys nested too deeply to be compared
            row, semantics = self._keys.read(key)
        if row is None:
            self.ignored += 1
        else:
            self._take(index, DELETE, row, semantics)

    def batch(self, sent: int) -> Batch:
        return assemble(sent, self.ignored, [self._validated()], self.rows.refused)

    def lacking(self) -> dict[str, list[int]]:
        """Return for each nullable column the positions of the upserts without it. O(rows × columns), 15 ns each where none is without."""
        index, rows = self.rows.index, self.rows.rows
        names = [column.name for column in self.rows.rules.columns if column.nullable]
        if self.rows.ops.count(UPSERT) < len(rows):
            upserts = [at for at, op in enumerate(self.rows.ops) if op == UPSERT]
            index, rows = [index[at] for at in upserts], [rows[at] for at in upserts]
        try:
            if names:
                deque(map(itemgetter(*names), rows), 0)
        except KeyError:
            return {name: [at for at, row in zip(index, rows, strict=True) if name not in row] for name in names}
        return {name: [] for name in names}

    def _validated(self) -> ValidatedRows:
        rows, all_of = self.rows, self.semantics
        if all_of and all_of.count(all_of[0]) == len(all_of):
            kinds = all_of[:1]
        else:
            kinds = list({id(semantics): semantics for semantics in all_of}.values())

        def settle(ordinal: int, values: list[Any]) -> list[Any]:
            return self._settle(ordinal, values, kinds)

        return validate_rows(rows.rules, rows.relation, rows.ops, rows.index, rows.rows, self._lacking(kinds), DEBEZIUM_READERS, settle)

    def _lacking(self, kinds: Sequence[Semantics]) -> Findings:
        """Find the rows whose schema lacks an end of an interval: null would mean unbounded."""
        findings, ops, rows = Findings(), self.rows.ops, self.rows.rows
        for ordinal in self.rows.rules.nullable_ends:
            name = self.rows.rules.names[ordinal]
            if any(kind and name not in kind for kind in kinds):
                fields = enumerate(zip(ops, rows, self.semantics, strict=True))
                bad = [at for at, (op, row, kind) in fields if op == UPSERT and kind and name not in kind and name not in row]
                findings.add(ordinal, mask_of(bad, len(rows)), name, lambda row: _NO_END)
        return findings

    def _settle(self, ordinal: int, values: list[Any], kinds: Sequence[Semantics]) -> list[Any]:
        """Return one column's values with their semantic types applied; `kinds` are the distinct ones of `semantics`."""
        column = self.rows.rules.columns[ordinal]
        if (unavailable := _UNAVAILABLE_IN.get(column.type)) is not None and unavailable in values:
            values = [_NOT_SENT if value == unavailable else value for value in values]
        opened = column.type in ("timestamp", "date") and has_open_ends(values)
        settlers: dict[int, Settler | None] = {id(kind): settler(column.kind, kind.get(column.name), opened) for kind in kinds}
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
