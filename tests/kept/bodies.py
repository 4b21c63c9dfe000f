"""Changes as the body of a request, in every accepted form."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from datetime import date, datetime
from typing import Any, NamedTuple

import pyarrow as pa

from tests.end_to_end import talk
from tests.kept import relations

Change = dict[str, Any]

_ARROW = {
    "int64": pa.int64(), "float64": pa.float64(), "timestamp": pa.timestamp("us", "UTC"), "date": pa.date32(), "string": pa.utf8(),
    "bool": pa.bool_(),
}  # fmt: skip
_DEBEZIUM_OPS = {"insert": "r", "upsert": "u", "delete": "d", "truncate": "t"}
_SEMANTICS = {"timestamp": "io.debezium.time.MicroTimestamp", "date": "io.debezium.time.Date"}


class Body(NamedTuple):
    path: str
    media: str
    content: bytes


def upsert(relation: str, row: relations.Row) -> Change:
    return {"relation": relation, "op": "upsert", "row": row}


def insert(relation: str, row: relations.Row) -> Change:
    return {"relation": relation, "op": "insert", "row": row}


def delete(relation: str, definition: dict[str, Any], row: relations.Row) -> Change:
    return {"relation": relation, "op": "delete", "key": {name: row[name] for name in definition["key"]}}


def truncate(relation: str) -> Change:
    return {"relation": relation, "op": "truncate"}


def body(form: str, changes: Sequence[Change], definitions: dict[str, dict[str, Any]]) -> Body:
    """`form` is one of FORMS; forms for one relation accept changes of one relation only."""
    if form == "json":
        return Body("/v1/changes", talk.JSON, json.dumps({"changes": changes}).encode())
    if form == "jsonl":
        return Body("/v1/changes", talk.JSONL, b"".join(json.dumps(change).encode() + b"\n" for change in changes))
    if form == "arrow":
        names = dict.fromkeys(change["relation"] for change in changes)
        parts = [[change for change in changes if change["relation"] == name] for name in names]
        streams = [talk.arrow_bytes(_table(definitions[part[0]["relation"]], part), part[0]["relation"]) for part in parts]
        return Body("/v1/changes", talk.ARROW, b"".join(streams))
    (name,) = {change["relation"] for change in changes}
    media, encode = _OF_ONE[form]
    return Body(f"/v1/relations/{name}/changes", media, encode(definitions[name], changes))


def _values(change: Change) -> relations.Row:
    return change.get("row") or change.get("key") or {}


def _lines(definition: dict[str, Any], changes: Sequence[Change]) -> bytes:
    return b"".join(json.dumps({"_op": change["op"], **_values(change)}).encode() + b"\n" for change in changes)


def _csv(definition: dict[str, Any], changes: Sequence[Change]) -> bytes:
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    names = [column["name"] for column in definition["columns"]]
    writer.writerow(["_op", *names])
    for change in changes:
        writer.writerow([change["op"], *(_text(_values(change).get(name)) for name in names)])
    return file.getvalue().encode()


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _table(definition: dict[str, Any], changes: Sequence[Change]) -> pa.Table:
    columns = {"_op": pa.array([change["op"] for change in changes], pa.utf8())}
    for column in definition["columns"]:
        values = [_arrow_value(column["type"], _values(change).get(column["name"])) for change in changes]
        columns[column["name"]] = pa.array(values, _ARROW[column["type"]])
    return pa.table(columns)


def _arrow_value(kind: str, value: Any) -> Any:
    if value is None or kind not in ("timestamp", "date", "float64"):
        return value
    return {"timestamp": datetime.fromisoformat, "date": date.fromisoformat, "float64": float}[kind](value)


def _number(kind: str, value: Any) -> Any:
    """A time as Debezium writes it: microseconds, days."""
    if value is None or kind not in _SEMANTICS:
        return value
    since = datetime.fromisoformat(value).replace(tzinfo=None) - datetime(1970, 1, 1)
    return since.days if kind == "date" else (since.days * 86_400 + since.seconds) * 10**6 + since.microseconds


def _envelope(definition: dict[str, Any], change: Change) -> dict[str, Any]:
    kinds = {column["name"]: column["type"] for column in definition["columns"]}
    row = {name: _number(kinds[name], value) for name, value in _values(change).items()}
    before, after = (row, None) if change["op"] == "delete" else (None, row or None)
    return {"op": _DEBEZIUM_OPS[change["op"]], "before": before, "after": after, "source": {"table": change["relation"]}, "ts_ms": 0}


def _debezium(definition: dict[str, Any], changes: Sequence[Change]) -> bytes:
    """Bare envelopes, with a tombstone after each delete."""
    lines = []
    for change in changes:
        lines.append(json.dumps(_envelope(definition, change)))
        lines += ["null"] if change["op"] == "delete" else []
    return "\n".join(lines).encode()


def _debezium_wrapped(definition: dict[str, Any], changes: Sequence[Change]) -> bytes:
    """Keys and values in `schema` and `payload`, with semantic types."""
    fields = [{"field": c["name"], "type": c["type"], **({"name": _SEMANTICS[c["type"]]} if c["type"] in _SEMANTICS else {})}
              for c in definition["columns"]]  # fmt: skip
    schema = {"type": "struct", "fields": [{"field": side, "type": "struct", "fields": fields} for side in ("before", "after")]}
    key_schema = {"type": "struct", "fields": [field for field in fields if field["field"] in definition["key"]]}
    lines = []
    for change in changes:
        envelope = _envelope(definition, change)
        row = envelope["before"] or envelope["after"] or {}
        key = {name: row[name] for name in definition["key"] if name in row}
        value = {"schema": schema, "payload": envelope}
        lines.append(json.dumps({"key": {"schema": key_schema, "payload": key} if key else None, "value": value}))
    return "\n".join(lines).encode()


def _of_table(media: str) -> Callable[[dict[str, Any], Sequence[Change]], bytes]:
    return lambda definition, changes: talk.encode_table(_table(definition, changes), media)


_OF_ONE: dict[str, tuple[str, Callable[[dict[str, Any], Sequence[Change]], bytes]]] = {
    "lines": (talk.JSONL, _lines),
    "csv": (talk.CSV, _csv),
    "arrow of one": (talk.ARROW, _of_table(talk.ARROW)),
    "parquet": (talk.PARQUET, _of_table(talk.PARQUET)),
    "debezium": (talk.DEBEZIUM, _debezium),
    "debezium wrapped": (talk.DEBEZIUM, _debezium_wrapped),
}
OF_ANY = ("json", "jsonl", "arrow")
OF_ONE = tuple(_OF_ONE)
FORMS = (*OF_ONE, *OF_ANY)
