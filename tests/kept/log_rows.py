"""The kinds of rows in the log of a folder, to check that a kept folder has all of them. Reads the database itself, without the service."""

from __future__ import annotations

import json
import shutil
import sqlite3
import struct
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_HEADER = struct.Struct("<iIQQ")  # relation, flags, bytes of deletes, bytes of inserts
_COUNT = struct.Struct("<Q")
_TRUNCATE, _JSON, _AGES = 1, 2, 4

EFFECTS = (
    "inserts as JSON", "deletes as JSON", "inserts as Arrow", "deletes as Arrow", "deletes and inserts as Arrow", "truncate",
    "truncate, inserts as Arrow",
)  # fmt: skip
BATCHES = (
    "no effect", "one relation", "several relations", "JSON and Arrow", "run", "run of several relations", "of a dropped relation",
    "no source", "source", "source and run", "in the database", "in the WAL",
)  # fmt: skip


class Found(NamedTuple):
    """What is in the log: rows up to the snapshot's version, rows after it, and how many there are of each kind after it."""

    snapshot: int
    before: int
    after: int
    bytes: int
    kinds: dict[str, int]

    def lacks(self, but: tuple[str, ...] = ()) -> list[str]:
        return [kind for kind in (*EFFECTS, *BATCHES) if kind not in self.kinds and kind not in but]


def look(folder: Path) -> Found:
    """Cost: a copy of the database."""
    versions = [int(path.name) for path in (folder / "snapshots").glob("*") if path.name.isdigit()]
    snapshot = max(versions, default=0)
    kinds: Counter[str] = Counter()
    rows, dropped = _read(folder, True)
    in_database = {row[0] for row in _read(folder, False)[0]}
    waiting = 0  # batches without effect that may belong to a run
    for version, source, run, payload in rows:
        if version <= snapshot:
            continue
        kinds["no source" if source is None else "source" if run is None else "source and run"] += 1
        kinds["in the database" if version in in_database else "in the WAL"] += 1
        if not payload:
            kinds["no effect"] += 1
            waiting += 1
            continue
        for kind in _batch(payload, dropped, waiting):
            kinds[kind] += 1
        waiting = 0
    before = sum(row[0] <= snapshot for row in rows)
    return Found(snapshot, before, len(rows) - before, sum(len(row[3]) for row in rows), dict(sorted(kinds.items())))


def _read(folder: Path, with_wal: bool) -> tuple[list[tuple[int, str | None, str | None, bytes]], set[int]]:
    """The log's rows, and the ids of relations that there are no more (by what follows the known ones)."""
    with tempfile.TemporaryDirectory() as place:
        for path in folder.glob("livejoin.db*"):
            if with_wal or not path.name.endswith("-wal"):
                shutil.copy(path, place)
        db = sqlite3.connect(Path(place) / "livejoin.db")
        rows = db.execute("SELECT version, source, run, payload FROM log ORDER BY version").fetchall()
        known = {row[0] for row in db.execute("SELECT id FROM relations")}
        next_id = db.execute("SELECT value FROM meta WHERE name = 'next_relation_id'").fetchone()[0]
        db.close()
    return rows, set(range(next_id)) - known


def _effects(payload: bytes) -> Iterator[tuple[int, int, bytes, bytes]]:
    at = 0
    while at < len(payload):
        relation, flags, deletes, inserts = _HEADER.unpack_from(payload, at)
        start = at + _HEADER.size
        middle = start + deletes + (-deletes & 7)
        at = middle + inserts + (-inserts & 7)
        if flags & _AGES:
            size = _COUNT.size + 2 * _COUNT.unpack_from(payload, at)[0]
            at += size + (-size & 7)
        yield relation, flags, payload[start : start + deletes], payload[middle : middle + inserts]


def _batch(payload: bytes, dropped: set[int], waiting: int) -> Iterator[str]:
    forms = set()
    effects = list(_effects(payload))
    for relation, flags, deletes, inserts in effects:
        form = "JSON" if flags & _JSON else "Arrow"
        if deletes or inserts:
            forms.add(form)
            parts = [name for name, part in (("deletes", deletes), ("inserts", inserts)) if part]
            yield ("truncate, " if flags & _TRUNCATE else "") + " and ".join(parts) + f" as {form}"
        elif flags & _TRUNCATE:
            yield "truncate"
        if form == "JSON" and inserts:
            assert len(json.loads(inserts)) == 1
        if relation in dropped:
            yield "of a dropped relation"
    yield "one relation" if len(effects) == 1 else "several relations"
    if len(forms) > 1:
        yield "JSON and Arrow"
    if waiting and forms == {"Arrow"}:
        yield "run" if len(effects) == 1 else "run of several relations"
