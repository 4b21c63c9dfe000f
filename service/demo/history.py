"""The terms of office, in chronological order, and the relations and views of the demo (`demo.json`), with the views' final rows.

Source: `service/data/congress` (unitedstates/congress-legislators, CC0). A term starts without an end and is closed by an update when it
ends.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).resolve().parents[1] / "data" / "congress"
OPEN = "9999-12-31"  # the data's way to say "still in office"
EPOCH = date(1970, 1, 1)
DATES = ("start_date", "end_date")
PREFIX = "congress.public."  # of the topics, as Debezium names them

_DEFINITIONS = json.loads((FOLDER / "demo.json").read_text())
RELATIONS: dict[str, dict[str, Any]] = _DEFINITIONS["relations"]
VIEWS: dict[str, dict[str, Any]] = _DEFINITIONS["views"]  # `checked`: the columns of the checksum, in its order


class Change(NamedTuple):
    """One row written at a historical date: `before` None starts a term."""

    day: date
    relation: str
    before: dict[str, Any] | None
    after: dict[str, Any]

    def to_rest(self) -> dict[str, Any]:
        """Return the change as an element of `changes` in POST /v1/changes."""
        return {"relation": self.relation, "op": "upsert", "row": self.after}

    def to_debezium(self, position: int) -> tuple[bytes, bytes]:
        """Return key and value of the record that Debezium's PostgreSQL connector sends, without schemas. `position` stands for the LSN."""
        moment = (self.day - EPOCH).days * 86_400_000
        source: dict[str, Any] = {"version": "2.7.3.Final", "connector": "postgresql", "name": "demo", "ts_ms": moment, "snapshot": "false"}
        source |= {"db": "congress", "schema": "public", "table": self.relation, "txId": position, "lsn": position}
        value: dict[str, Any] = {"before": _in_days(self.before), "after": _in_days(self.after), "source": source}
        value |= {"op": "c" if self.before is None else "u", "ts_ms": moment, "transaction": None}
        return json.dumps({"id": self.after["id"]}).encode(), json.dumps(value, ensure_ascii=False).encode()


def history() -> list[Change]:
    """Return all changes in order. The data says an update as a delete and an insert of one key on one day."""
    changes: list[Change] = []
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    columns = {relation: [column["name"] for column in definition["columns"]] for relation, definition in RELATIONS.items()}
    with gzip.open(FOLDER / "timeline.jsonl.gz", "rt", encoding="utf-8") as lines:
        for entry in map(json.loads, lines):
            if entry["op"] == "insert":
                relation, key = entry["relation"], (entry["relation"], entry["row"]["id"])
                row = {name: entry["row"][name] for name in columns[relation]}
                row["end_date"] = None if row["end_date"] == OPEN else row["end_date"]
                changes.append(Change(date.fromisoformat(entry["date"]), relation, rows.get(key), row))
                rows[key] = row
    return changes


def checksum(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> tuple[int, str]:
    """Return number of rows and order-independent checksum: the sum of 64 bits of SHA-256 of each row's values, joined by tabs."""
    count = total = 0
    for row in rows:
        text = "\t".join(str(row[column]) for column in columns)
        total += int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        count += 1
    return count, str(total % 2**64)


def _in_days(row: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Convert dates to days since 1970: `io.debezium.time.Date`."""
    if row is None:
        return None
    return {name: (date.fromisoformat(value) - EPOCH).days if name in DATES and value else value for name, value in row.items()}
