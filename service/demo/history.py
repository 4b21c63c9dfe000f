"""The terms of office, in chronological order, and the views over them.

Source: `service/data/congress` (unitedstates/congress-legislators, CC0). A term starts without an end and is closed by an update when it
ends. The views' final rows are known: they come with the data (`expected`).
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).resolve().parents[1] / "data" / "congress"
OPEN = "9999-12-31"  # the data's way to say "still in office"
EPOCH = date(1970, 1, 1)
DATES = ("start_date", "end_date")
PREFIX = "congress.public."  # of the topics, as Debezium names them

_COLUMNS = {
    "president_terms": {"id": "int64", "name": "string", "party": "string"},
    "vice_president_terms": {"id": "int64", "name": "string", "party": "string"},
    "senator_terms": {"id": "int64", "person": "string", "name": "string", "state": "string", "party": "string", "class": "int64"},
    "rep_terms": {"id": "int64", "person": "string", "name": "string", "state": "string", "party": "string", "district": "int64"},
}
RELATIONS: dict[str, dict[str, Any]] = {
    relation: {
        "columns": [
            *({"name": name, "type": kind} for name, kind in columns.items()),
            {"name": "start_date", "type": "date"},
            {"name": "end_date", "type": "date", "nullable": True},
        ],
        "key": ["id"],
        "intervals": {"term": {"start": "start_date", "end": "end_date", "bounds": "[)"}},
    }
    for relation, columns in _COLUMNS.items()
}


class DemoView(NamedTuple):
    """`words` describes the view; `identity` lists the columns of the known checksum, in its order."""

    words: str
    sql: str
    identity: tuple[str, ...]


VIEWS = {
    "presidents_with_vices": DemoView(
        "presidents and vice presidents, in office together",
        "SELECT p.name AS president, v.name AS vice_president, intersection(p.term, v.term) AS together, p.id AS p_id, v.id AS v_id "
        "FROM president_terms p JOIN vice_president_terms v ON overlaps(p.term, v.term)",
        ("p_id", "v_id", "president", "vice_president"),
    ),
    "senators_under_presidents": DemoView(
        "senators and the presidents of their terms",
        "SELECT p.name AS president, s.name AS senator, s.state AS state, intersection(p.term, s.term) AS together, "
        "p.id AS p_id, s.id AS s_id FROM president_terms p JOIN senator_terms s ON overlaps(p.term, s.term)",
        ("p_id", "s_id", "president", "senator"),
    ),
    "delegation": DemoView(
        "a senator and a representative of one state, in office together",
        "SELECT s.state AS state, s.name AS senator, r.name AS representative, intersection(s.term, r.term) AS together, "
        "s.id AS s_id, r.id AS r_id FROM senator_terms s JOIN rep_terms r ON s.state = r.state AND overlaps(s.term, r.term)",
        ("s_id", "r_id", "state"),
    ),
    "same_state_senators": DemoView(
        "two senators of one state, each pair once",
        "SELECT a.state AS state, a.name AS senator, b.name AS colleague, intersection(a.term, b.term) AS together, "
        "a.id AS a_id, b.id AS b_id FROM senator_terms a JOIN senator_terms b "
        "ON a.state = b.state AND a.id < b.id AND overlaps(a.term, b.term)",
        ("a_id", "b_id"),
    ),
}


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
    with gzip.open(FOLDER / "timeline.jsonl.gz", "rt", encoding="utf-8") as lines:
        for entry in map(json.loads, lines):
            if entry["op"] == "insert":
                relation, key = entry["relation"], (entry["relation"], entry["row"]["id"])
                row = {name: entry["row"][name] for name in (*_COLUMNS[relation], *DATES)}
                row["end_date"] = None if row["end_date"] == OPEN else row["end_date"]
                changes.append(Change(date.fromisoformat(entry["date"]), relation, rows.get(key), row))
                rows[key] = row
    return changes


def expected() -> dict[str, tuple[int, str]]:
    """Return rows and checksum of each view after the whole history."""
    known = {view["name"]: view for view in json.loads((FOLDER / "queries.json").read_text())["views"]}
    return {name: (known[name]["rows"], known[name]["checksum"]) for name in VIEWS}


def checksum(rows: Iterable[Mapping[str, Any]], columns: tuple[str, ...]) -> tuple[int, str]:
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
