"""A hotel's bookings and the maintenance of its rooms, as Debezium tells them, and the view that they end in.

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
CREATES, UPDATES = 0.6, 0.3  # the rest deletes; of a relation without rows all are creates
_DRAWN = 10_000  # records whose random numbers are drawn at once


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
    """Draws records, always the same; `rows`: what is there after those drawn. `schemas`: each record carries its schema."""

    def __init__(self, schemas: bool = False) -> None:
        self.rows: dict[str, dict[int, dict[str, Any]]] = {relation: {} for relation in RELATIONS}
        self._live: dict[str, list[int]] = {relation: [] for relation in RELATIONS}
        self._heads = {relation: b'{"schema":' + orjson.dumps(_schema(relation)) + b',"payload":' for relation in RELATIONS}
        self._schemas = schemas
        self._rng = np.random.default_rng(4)
        self._drawn = 0

    def records(self, count: int, creates: float = CREATES) -> Iterator[Record]:
        """The next `count` records, a share of `creates` of them creates; 3 µs each."""
        return islice(self._draw(creates), count)

    def _draw(self, creates: float) -> Iterator[Record]:
        rng = self._rng
        while True:
            kinds, places = rng.random(_DRAWN).tolist(), rng.random(_DRAWN).tolist()
            rooms, starts = rng.integers(0, ROOMS, _DRAWN).tolist(), (NEW_YEAR + rng.integers(0, 365 * DAY, _DRAWN)).tolist()
            lengths = rng.random(_DRAWN).tolist()
            for kind, place, room, start, length in zip(kinds, places, rooms, starts, lengths, strict=True):
                relation = RELATIONS[self._drawn % 2]
                end = start + 1 + int(length * LONGEST[relation])
                yield self._change(relation, kind - creates, place, room, start, end)

    def _change(self, relation: str, kind: float, place: float, room: int, start: int, end: int) -> Record:
        """A create if `kind` is negative, an update below UPDATES, else a delete; `place` chooses the row, in [0, 1)."""
        self._drawn = number = self._drawn + 1
        rows, live = self.rows[relation], self._live[relation]
        if kind < 0 or not live:
            after = {"id": number, "room": f"room {room}", TEXTS[relation]: f"{TEXTS[relation]} {number}", "starts": start, "ends": end}
            live.append(number)
            rows[number] = after
            return self._record(relation, "c", number, None, after)
        at = int(place * len(live))
        id_ = live[at]
        if kind < UPDATES:
            rows[id_] = after = {**rows[id_], "starts": start, "ends": end}
            return self._record(relation, "u", id_, None, after)
        live[at] = live[-1]
        live.pop()
        del rows[id_]
        return self._record(relation, "d", id_, {"id": id_, "room": "", TEXTS[relation]: "", "starts": 0, "ends": 0}, None)

    def _record(self, relation: str, op: str, id_: int, before: Any, after: Any) -> Record:
        micros = NEW_YEAR + 250 * self._drawn  # 4,000 changes a second at the source
        value = orjson.dumps(
            {
                "before": before,
                "after": after,
                "source": {
                    "version": "3.0.0.Final", "connector": "postgresql", "name": "hotel", "ts_ms": micros // 1000, "snapshot": "false",
                    "db": "hotel", "sequence": f'["{24_000_000 + 96 * self._drawn}","{24_000_096 + 96 * self._drawn}"]', "ts_us": micros,
                    "ts_ns": 1000 * micros, "schema": "public", "table": relation, "txId": 500 + self._drawn,
                    "lsn": 24_000_096 + 96 * self._drawn, "xmin": None,
                },
                "transaction": None,
                "op": op,
                "ts_ms": micros // 1000 + 40,
                "ts_us": micros + 40_000,
                "ts_ns": 1000 * (micros + 40_000),
            }
        )  # fmt: skip
        key = b'{"id":%d}' % id_
        return Record(relation, key, self._heads[relation] + value + b"}" if self._schemas else value)

    def view_rows(self) -> int:
        """How many rows the view has over `rows`, by counting. O(n log n)."""
        (a_start, a_end), (b_start, b_end) = (self._folded(relation) for relation in RELATIONS)
        # Of the other relation, what starts before I end, less what ended before I start: it did both.
        started, ended = np.searchsorted(np.sort(b_start), a_end, "left"), np.searchsorted(np.sort(b_end), a_start, "right")
        return int((started - ended).sum())

    def _folded(self, relation: str) -> tuple[np.ndarray, np.ndarray]:
        """Starts and ends, each room on a stretch of the line of its own."""
        rows = self.rows[relation].values()
        room = np.array([int(row["room"][5:]) for row in rows], np.int64) * (400 * DAY) - NEW_YEAR
        return room + np.array([row["starts"] for row in rows], np.int64), room + np.array([row["ends"] for row in rows], np.int64)


def _schema(relation: str) -> dict[str, Any]:
    """The envelope's schema as the connector sends it."""

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
