"""The examples of bodies in the OpenAPI document, which fit their schemas."""

from __future__ import annotations

from typing import Any

_ERRORS = [{"index": 3, "column": "ends", "reason": "the interval is empty"}]

# The extension members of some problems, as in their examples.
PROBLEM_EXTENSIONS: dict[str, dict[str, Any]] = {
    "bad-parameter": {"parameter": "limit"},
    "bad-rows": {"error_count": 1, "errors": _ERRORS},
    "body-too-large": {"limit": 268435456},
    "infeasible-view": {"theorem": "Tao and Yi, Theorem 3"},
    "internal": {"request_id": "0f8fad5bd9cb469fa16570867728950e"},
    "malformed-body": {"line": 2},
    "not-acceptable": {"available": ["application/jsonl", "application/json"]},
    "recovering": {"stage": "compiling", "progress": 0.4},
    "relation-in-use": {"views": ["clashes"]},
    "unsupported-media-type": {"supported": ["application/json"]},
    "view-building": {"progress": 0.7},
}

RELATION_DEFINITION = {
    "columns": [
        {"name": "id", "type": "int64", "nullable": False},
        {"name": "room", "type": "string", "nullable": False},
        {"name": "starts", "type": "timestamp", "nullable": False},
        {"name": "ends", "type": "timestamp", "nullable": True},
    ],
    "key": ["id"],
    "intervals": {"stay": {"start": "starts", "end": "ends", "bounds": "[)"}},
}
RELATION = {"name": "bookings"} | RELATION_DEFINITION | {"rows": 3}
PATCH = {
    "add_columns": [{"name": "note", "type": "string", "nullable": True}],
    "add_intervals": {"arrival": {"at": "starts"}},
    "nullable": ["room"],
    "retain": {"column": "ends", "for": "P90D"},
}
CHANGES = {
    "source": "pms",
    "epoch": 17,
    "changes": [
        {"relation": "bookings", "op": "upsert", "row": {"id": 1, "room": "A", "starts": "2026-01-01T12:00:00Z", "ends": None}},
        {"relation": "bookings", "op": "delete", "key": {"id": 9}},
    ],
}
RECEIPT = {"version": 42, "applied": 3, "ignored": 0, "skipped_count": 0, "skipped": [], "duplicate": False}
RECEIPT_SKIPPED = RECEIPT | {"version": 43, "applied": 2, "skipped_count": 1, "skipped": _ERRORS}
RECEIPT_REPEATED = RECEIPT | {"version": 57, "applied": 0, "duplicate": True, "first": RECEIPT_SKIPPED}
_SOURCE = {"name": "pms", "run": "3f0c", "epoch": 17, "version": 42, "time": "2026-01-01T12:00:00.250000Z", "relations": ["bookings"]}
SOURCES = {"sources": [_SOURCE]}
STAGED = {"stage": "nightly", "part": 0, "part_rows": 65536, "parts": 1, "rows": 65536, "skipped_count": 0, "skipped": []}
DELETION = {"where": [{"column": "ends", "op": "<", "value": "2025-01-01"}], "source": "cleaning", "epoch": 3}
VIEW_SQL = {
    "sql": "SELECT b.id AS booking, m.id AS job, intersection(b.stay, m.slot) AS clash "
    "FROM bookings b JOIN maintenance m ON b.room = m.room AND overlaps(b.stay, m.slot) WHERE b.status = 'confirmed'"
}
VIEW_JSON = {
    "from": {"b": "bookings", "m": "maintenance"},
    "join": [{"equal": ["b.room", "m.room"]}, {"overlaps": ["b.stay", "m.slot"]}],
    "where": [{"column": "b.status", "op": "=", "value": "confirmed"}],
    "select": ["b.id as booking", "m.id as job", {"intersection": ["b.stay", "m.slot"], "as": "clash"}],
}
PLAN = {
    "class": "interval join, 1-D, 2 relations, keyed",
    "algorithm": "interval-tree",
    "theorem": "Tao and Yi, Theorem 1",
    "guarantee": "strict",
    "bounds": {"space": "O(n)", "update": "O(log n)", "delay": "O(log n)"},
    "order": ["b", "m"],
    "notes": [],
}
OTHER_PLAN = PLAN | {
    "algorithm": "nested-loop",
    "theorem": None,
    "guarantee": "best-effort",
    "bounds": {
        "space": "O(n) per index; there are 2",
        "update": "O(log n) per index, and the candidates",
        "delay": "O(log n) between candidates, no bound between rows",
    },
}
EXPLANATION = {"plan": PLAN, "alternatives": [OTHER_PLAN], "reads": [], "stored": []}
VIEW = {
    "name": "clashes",
    "state": "live",
    "version": 42,
    "empty": False,
    "definition": VIEW_JSON,
    "reads": [],
    "read_by": [],
    "inputs": {"bookings": 0.000021, "maintenance": 0.000035},
    "stored": [],
    "plan": PLAN,
    "shape": {
        "aliases": [
            {"name": "b", "relation": "bookings", "key": ["id"], "join_key": ["room"], "optional": False},
            {"name": "m", "relation": "maintenance", "key": ["id"], "join_key": ["room"], "optional": False},
        ],
        "columns": [
            {"name": "booking", "kind": "column", "alias": "b"},
            {"name": "job", "kind": "column", "alias": "m"},
            {"name": "clash_start", "kind": "intersection_start", "alias": None},
            {"name": "clash_end", "kind": "intersection_end", "alias": None},
        ],
        "dimensions": [
            [
                {"alias": "b", "interval": "stay", "type": "timestamp", "bounds": "[)"},
                {"alias": "m", "interval": "slot", "type": "timestamp", "bounds": "[)"},
            ]
        ],
        "key": {"alias": "m", "columns": ["room"]},
    },
    "statistics": {
        "intervals": 200000,
        "bytes": 14400000,
        "bytes_per_row": 72.0,
        "groups": None,
        "sums_out_of_range": None,
        "texts_too_long": None,
        "bits_per_tuple": None,
        "update_seconds": {"p50": 0.00002, "p99": 0.0001},
        "steps_per_update": 9.5,
        "flips_per_update": None,
        "rows_read": 400000,
        "steps_per_row": 1.4,
        "delay_steps": {"max": 21},
        "dead_ends": None,
        "counters": {},
    },
}
BACKUP_FORM = {"target": "/backups/2026-01-05", "since": "/backups/2026-01-04"}
BACKUP = BACKUP_FORM | {"state": "running", "id": "5f0c1d2e3a4b5c6d", "started": "2026-01-05T03:00:00Z", "progress": 0.4}
TOKEN_FORM = {"name": "etl", "scope": "write", "relations": ["bookings"], "views": ["*"], "expires": "2027-01-01T00:00:00Z"}
TOKEN = TOKEN_FORM | {"created": "2026-01-01T12:00:00Z"}
NEW_TOKEN = TOKEN | {"token": "lj_pW1Xy0cVbK8s6zJvYt3mQe5hR7uNfLaGdSoIxT2wHkE"}
_CLASH = {"booking": 1, "job": 7, "clash_start": "2026-01-01T12:00:00Z", "clash_end": "2026-01-01T14:00:00Z"}
QUERY = (
    {"sql": "SELECT b.room, count(*) AS bookings FROM bookings b LEFT JOIN clashes c ON c.booking = b.id GROUP BY b.room ORDER BY b.room"},
    {"sql": "SELECT room, sum(price) AS nights FROM bookings GROUP BY room", "version": 42},
)
QUERY_PAGE = {"version": 42, "rows": [{"room": "A", "nights": "12.50"}], "next": None}
ANALYSIS = {
    "version": 42, "row_count": 1200, "steps": 3611, "delay_steps": {"max": 13, "mean": 3.0}, "dead_ends": None, "counters": {},
    "seconds": 0.002,
}  # fmt: skip
PAGE = {
    "version": 42,
    "rows": [_CLASH],
    "next": None,
}

_STAY = {"start": "2026-01-01T12:00:00Z", "end": None}
_SLOT = {"start": "2026-01-01T10:00:00Z", "end": "2026-01-01T14:00:00Z"}
WINDOW = {
    "version": 42,
    "extent": [{"start": _SLOT["start"], "end": _SLOT["end"], "most": {"start": _SLOT["start"], "end": _SLOT["end"]}}],
    "keys": {"columns": ["room"], "from": 0, "of": 1, "whole": True},
    "lanes": [
        {
            "key": {"room": "A"},
            "more": False,
            "rows": [{"key": {"b": {"id": 1}, "m": {"id": 7}}, "ends": {"b": {"stay": _STAY}, "m": {"slot": _SLOT}}, "row": _CLASH}],
        }
    ],
}
