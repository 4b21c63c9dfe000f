"""Copies the tables of a database row by row, unchanged: each row has its checksum."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from typing import Any, NamedTuple

from service.durability.database import INSERT, INSERT_REST

_PIECE = 1 << 20  # bytes of log rows read at a time: the writer waits for about a millisecond
_PAUSE = 2.0  # times as long as a piece took
_CATALOGUE = ("meta", "relations", "views", "sources")

Reading = Callable[[], AbstractContextManager[sqlite3.Connection]]


class Catalogue(NamedTuple):
    """The rows of all tables except the log, at one moment, and the version of that moment."""

    rows: dict[str, list[tuple[Any, ...]]]
    version: int


def put_rows(db: sqlite3.Connection, tables: Mapping[str, Sequence[tuple[Any, ...]]]) -> None:
    """Replace the rows of the tables by these."""
    for table, rows in tables.items():
        db.execute(f"DELETE FROM {table}")
        for row in rows:
            db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)


def read_catalogue(db: sqlite3.Connection, version: int) -> Catalogue:
    return Catalogue({table: db.execute(f"SELECT * FROM {table}").fetchall() for table in _CATALOGUE}, version)


def copy_log(reading: Reading, target: sqlite3.Connection, after: int, last: int, done: Callable[[int], None], patient: bool) -> None:
    """Copy the log's rows (after, last]. `reading` provides the source's connection for a moment; `patient`: pause between pieces, for its
    writer.

    `done` is called with the bytes of each piece.
    """
    queries = (
        ("SELECT * FROM log WHERE version > ? AND version <= ? ORDER BY version", INSERT, lambda row: (row[0],), (after,)),
        (
            "SELECT * FROM log_rest WHERE (version, part) > (?, ?) AND version <= ? ORDER BY version, part",
            INSERT_REST,
            lambda row: (row[0], row[1]),
            (after, 1 << 40),
        ),
    )
    for query, insert, position, start in queries:
        at: tuple[int, ...] | None = start
        while at is not None:
            begun = time.monotonic()
            with reading() as db:
                rows = list(_piece(db, query, (*at, last)))
            took = time.monotonic() - begun
            target.executemany(insert, rows)
            at = position(rows[-1]) if rows else None
            done(sum(len(row[-1]) for row in rows))
            if patient:
                time.sleep(_PAUSE * took)


def _piece(db: sqlite3.Connection, query: str, where: tuple[int, ...]) -> Iterator[tuple[Any, ...]]:
    size = 0
    with closing(db.execute(query, where)) as rows:
        for row in rows:
            yield row
            size += len(row[-1])
            if size >= _PIECE:
                return
