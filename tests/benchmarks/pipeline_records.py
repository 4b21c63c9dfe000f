"""A hotel's bookings and the maintenance of its rooms as Debezium records, and the number of rows of the resulting view.

The records are those of the PostgreSQL connector 3.0 under REPLICA IDENTITY DEFAULT, without tombstones.
Source: Debezium's documents, "Debezium connector for PostgreSQL", "Data change events".
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import orjson

RELATIONS = ("bookings", "maintenance")
VIEW = "clashes"
SQL = (
    "SELECT b.id AS booking, m.id AS work, b.guest, m.task FROM bookings b "
    "JOIN maintenance m ON b.room = m.room AND overlaps(b.span, m.span)"
)
TEXTS = {"bookings": "guest", "maintenance": "task"}
ROOMS = 5_000
DAY = 86_400_000_000  # microseconds
NEW_YEAR = 1_767_225_600_000_000  # 2026-01-01
LONGEST = {"bookings": 14 * DAY, "maintenance": 5 * DAY}
CREATES, UPDATES = 0.6, 0.3  # the rest are deletes; for an empty relation all are creates
Rows = dict[str, dict[int, dict[str, Any]]]  # of each relation, by id
_DRAWN = 10_000  # records whose random numbers are drawn together


class Record(NamedTuple):
    """One record of the topic of a relation."""

    relation: str
    key: bytes
    value: bytes


def definition(relation: str) -> dict[str, Any]:
    """The relation, for `PUT /v1/relations/{name}`."""
    types = {"id": "int64", "room": "string", TEXTS[relation]: "string", "starts": "timestamp", "ends": "timestamp"}
    return {
        "columns": [{"name": name, "type": kind} for name, kind in types.items()],
        "key": ["id"],
        "intervals": {"span": {"start": "starts", "end": "ends", "bounds": "[)"}},
    }


class Hotel:
    """Generates records, always the same. `schemas`: each record includes its schema.

    `rows`: the rows after all records generated so far; `created`: all rows ever created, as they were created.
    """

    def __init__(self, schemas: bool = False) -> None:
        self.rows: Rows = {relation: {} for relation in RELATIONS}
        self.created: Rows = {relation: {} for relation in RELATIONS}
        self._live: dict[str, list[int]] = {relation: [] for relation in RELATIONS}
        self._heads = {relation: _head(relation) if schemas else b"" for relation in RELATIONS}
        self._rng = np.random.default_rng(4)
        self._drawn = 0

    def records(self, count: int, creates: float = CREATES) -> Iterator[Record]:
        """The next `count` records, a share of `creates` of them creates; 3 µs each."""
        return islice(self._draw(creates), count)

    def _draw(self, creates: float) -> Iterator[Record]:
        rng = self._rng
        while True:
            kinds, positions = rng.random(_DRAWN).tolist(), rng.random(_DRAWN).tolist()
            rooms, starts = rng.integers(0, ROOMS, _DRAWN).tolist(), (NEW_YEAR + rng.integers(0, 365 * DAY, _DRAWN)).tolist()
            lengths = rng.random(_DRAWN).tolist()
            for kind, position, room, start, length in zip(kinds, positions, rooms, starts, lengths, strict=True):
                relation = RELATIONS[self._drawn % 2]
                end = start + 1 + int(length * LONGEST[relation])
                yield self._change(relation, kind - creates, position, room, start, end)

    def _change(self, relation: str, kind: float, position: float, room: int, start: int, end: int) -> Record:
        """A create if `kind` is negative, an update if it is below UPDATES, otherwise a delete; `position`, in [0, 1), chooses the row."""
        self._drawn = number = self._drawn + 1
        rows, live = self.rows[relation], self._live[relation]
        head = self._heads[relation]
        if kind < 0 or not live:
            live.append(number)
            row = rows[number] = self.created[relation][number] = row_of(relation, number, f"room {room}", start, end)
            return record_of(relation, "c", row, number, head)
        at = int(position * len(live))
        if kind < UPDATES:
            row = rows[live[at]] = {**rows[live[at]], "starts": start, "ends": end}
            return record_of(relation, "u", row, number, head)
        row = rows.pop(live[at])
        live[at] = live[-1]
        live.pop()
        return record_of(relation, "d", row, number, head)


def row_of(relation: str, id_: int, room: str, start: int, end: int) -> dict[str, Any]:
    return {"id": id_, "room": room, TEXTS[relation]: f"{TEXTS[relation]} {id_}", "starts": start, "ends": end}


def record_of(relation: str, op: str, row: dict[str, Any], number: int, head: bytes = b"") -> Record:
    """The record of change number `number` at the source; `head`: the beginning with the schema, if records include it."""
    micros, lsn = NEW_YEAR + 250 * number, 24_000_000 + 96 * number  # 4,000 changes a second at the source
    # With the default replica identity, a delete has only the key of the row.
    before = {"id": row["id"], "room": "", TEXTS[relation]: "", "starts": 0, "ends": 0} if op == "d" else None
    value = orjson.dumps(
        {
            "before": before,
            "after": None if op == "d" else row,
            "source": {
                "version": "3.0.0.Final", "connector": "postgresql", "name": "hotel", "ts_ms": micros // 1000, "snapshot": "false",
                "db": "hotel", "sequence": f'["{lsn - 96}","{lsn}"]', "ts_us": micros, "ts_ns": 1000 * micros, "schema": "public",
                "table": relation, "txId": 500 + number, "lsn": lsn, "xmin": None,
            },
            "transaction": None,
            "op": op,
            "ts_ms": micros // 1000 + 40,
            "ts_us": micros + 40_000,
            "ts_ns": 1000 * (micros + 40_000),
        }
    )  # fmt: skip
    return Record(relation, b'{"id":%d}' % row["id"], head + value + b"}" if head else value)


def view_rows(rows: Rows) -> int:
    """Return the number of rows of the view over these, by counting. O(n log n)."""
    (a_start, a_end), (b_start, b_end) = (_folded(rows[relation]) for relation in RELATIONS)
    # For each row, those of the other relation that start before its end, minus those that end before its start (which are among them).
    started, ended = np.searchsorted(np.sort(b_start), a_end, "left"), np.searchsorted(np.sort(b_end), a_start, "right")
    return int((started - ended).sum())


def _folded(rows: dict[int, dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Starts and ends, with each room on a separate stretch of the line."""
    room = np.array([int(row["room"][5:]) for row in rows.values()], np.int64) * (400 * DAY) - NEW_YEAR
    starts, ends = (np.array([row[name] for row in rows.values()], np.int64) for name in ("starts", "ends"))
    return room + starts, room + ends


def _head(relation: str) -> bytes:
    """The beginning of a record that includes its schema."""
    return b'{"schema":' + orjson.dumps(_schema(relation)) + b',"payload":'


def _schema(relation: str) -> dict[str, Any]:
    """The schema of the envelope as the connector sends it."""

    def field(name: str, kind: str, semantic: str | None = None, optional: bool = False) -> dict[str, Any]:
        about = {"type": kind, "optional": optional, "field": name}
        return about | ({"name": semantic, "version": 1} if semantic else {})

    def struct(name: str, semantic: str, fields: list[dict[str, Any]], optional: bool) -> dict[str, Any]:
        return {"type": "struct", "fields": fields, "optional": optional, "name": semantic, "field": name}

    moment = "io.debezium.time.MicroTimestamp"
    texts = [field("room", "string"), field(TEXTS[relation], "string")]
    columns = [field("id", "int64"), *texts, field("starts", "int64", moment), field("ends", "int64", moment)]
    source = [field(name, "string") for name in ("version", "connector", "name", "db", "schema", "table")]
    source += [field(name, "string", optional=True) for name in ("snapshot", "sequence")]
    source += [field(name, "int64", optional=name != "ts_ms") for name in ("ts_ms", "ts_us", "ts_ns", "txId", "lsn", "xmin")]
    transaction = [field("id", "string"), field("total_order", "int64"), field("data_collection_order", "int64")]
    return {
        "type": "struct",
        "fields": [
            struct("before", f"hotel.public.{relation}.Value", columns, True),
            struct("after", f"hotel.public.{relation}.Value", columns, True),
            struct("source", "io.debezium.connector.postgresql.Source", source, False),
            struct("transaction", "event.block", transaction, True),
            field("op", "string"),
            *(field(name, "int64", optional=True) for name in ("ts_ms", "ts_us", "ts_ns")),
        ],
        "optional": False,
        "name": f"hotel.public.{relation}.Envelope",
        "version": 2,
    }
