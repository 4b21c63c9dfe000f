"""The JSON schemas of the bodies, by name, and the examples in the OpenAPI document."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from service.access.access_token import SCOPES, TokenForm
from service.api.descriptions.answers import ANSWERS
from service.api.descriptions.definitions import DEFINITIONS
from service.api.descriptions.describing import describe
from service.query.forms import Deletion, ExceptView, JsonView, SqlView, UnionView
from service.query.model import GUARANTEES
from service.wire.batch import MAX_ERRORS, OP_NAMES, UPSERT
from service.wire.json import MAX_TEXT
from service.wire.schema import NAME, RelationDefinition, RelationPatch

Schema = dict[str, Any]

_NAME = {"type": "string", "pattern": f"^{NAME.pattern}$"}
_COUNT = {"type": "integer", "minimum": 0}


def _object(properties: dict[str, Any], *optional: str, closed: bool = True) -> Schema:
    """Return an object with these properties, all required except the optional ones."""
    required = [name for name in properties if name not in optional]
    made: Schema = {"type": "object", "properties": properties, "additionalProperties": not closed}
    return made | {"required": required} if required else made


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


class _Untitled(GenerateJsonSchema):
    """Generates pydantic's schemas without a title for each field."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


_ROW = {"type": "object", "description": "a row: column → value"}
_REASON = _object({"index": _COUNT, "column": {"type": ["string", "null"]}, "reason": {"type": "string"}})
_CHANGE = _object(
    {
        "relation": {"type": "string"},
        "op": {"enum": list(OP_NAMES), "default": OP_NAMES[UPSERT]},
        "row": _ROW,
        "key": {"type": "object", "description": "the key columns of a deleted row"},
    },
    "op",
    "row",
    "key",
)

_SOURCE = _object(
    {
        "name": {"type": "string"},
        "run": {"type": ["string", "null"]},
        "epoch": {"type": "integer", "format": "int64"},
        "version": {"type": ["integer", "null"], "description": "the version of its last batch; null if unknown, like `time`"},
        "time": {"type": ["string", "null"], "format": "date-time"},
    }
)

_MEASURE: Schema = {"type": ["number", "null"], "minimum": 0}
_STATISTICS = _object(
    {
        "intervals": _COUNT | {"description": "entries in the view's structures"},
        "bytes": _COUNT
        | {"description": "memory of the structures at the newest version, with a share of common structures; without rows of relations"},
        "bytes_per_row": _MEASURE | {"description": "`bytes` divided by the rows of the view's relations"},
        "groups": _MEASURE | {"description": "groups that have rows, including those that HAVING excludes; null without groups"},
        "sums_out_of_range": _MEASURE | {"description": "sums that are null because they do not fit their type; null without groups"},
        "bits_per_tuple": _MEASURE | {"description": "size of quadtrees in their compact form, without the slots of rows"},
        "update_seconds": _object({"p50": _MEASURE, "p99": _MEASURE}),
        "steps_per_update": _MEASURE | {"description": "steps for the delta of a changed row, the rows of the delta included"},
        "flips_per_update": _MEASURE | {"description": "rows or prefixes that a changed row made live or dead"},
        "rows_read": _COUNT | {"description": "rows read by all readers since the view was built"},
        "steps_per_row": _MEASURE | {"description": "nodes, entries and candidates that readers visited, per row"},
        "delay_steps": _object({"max": _COUNT | {"description": "largest number of steps between two rows"}}),
        "dead_ends": {"type": ["integer", "null"]}
        | {"description": "nodes, rows and candidates visited without result; null: interval-tree, box-tree count only candidates"},
        "counters": {"type": "object", "additionalProperties": _COUNT}
        | {
            "description": "further counts of the algorithm in all readings, by name; tree-tracker: lookups, removed, no_goods, forgotten; "
            "minesweeper and elimination: probes, outputs, pairs (of a triangle), lookups, constraints, resets, forgotten; "
            "intersect: lookups, probes, outputs; bow-tie: these, ranges (the most that waited, summed over readings), forgotten; "
            "lqdag: looked_up, excluded, and with UNION or EXCEPT repeated (rows that an earlier SELECT had)"
        },
    },
    closed=False,
)

_TEXTS = _list({"type": "string"})
_NATURAL = _object(
    {
        "class": {"type": "string", "description": "the class, as in the plans"},
        "variables": {
            "type": "object",
            "additionalProperties": _TEXTS,
            "description": "columns that must be equal, named by the first one; several columns of an alias (`a.x a.y`) form a composite",
        },
        "elimination_order": {"oneOf": [_TEXTS, {"type": "null"}], "description": "nested, of the variables; null: not beta-acyclic"},
        "join_tree": {
            "oneOf": [_list(_object({"aliases": _TEXTS, "by": _TEXTS})), {"type": "null"}],
            "description": "edges of the join tree: two aliases and their common variables; null: cyclic, or a product",
        },
        "agm": _object(
            {
                "exponent": {"type": "number", "description": "exponent of n, if all relations have n rows"},
                "rows": {"type": "number", "description": "maximum number of rows of the view, for relations of their present size"},
                "cover": {
                    "type": "object",
                    "additionalProperties": {"type": "number"},
                    "description": "weight x of each alias: the product of all |R|^x is the bound",
                },
            },
            "rows",
        ),
    }
)

_SHAPE = _object(
    {
        "aliases": _list(
            _object({"name": _NAME, "relation": _NAME, "key": _TEXTS, "join_key": _TEXTS, "optional": {"type": "boolean"}})
        ),
        "columns": _list(_object({"name": {"type": "string"}, "kind": {"type": "string"}, "alias": {"type": ["string", "null"]}}))
        | {
            "description": "columns of the rows; `kind`: `column` (of an alias), `intersection_start`, `intersection_end`, `gaps_start`, "
            "`gaps_end`, `coverage_start`, `coverage_end`, `duration`, or `computed`"
        },
        "dimensions": _list(_list(_object({"alias": _NAME, "interval": _NAME, "type": {"type": "string"}, "bounds": {"type": "string"}})))
        | {"description": "joined intervals, grouped by those that overlap one another"},
        "key": {"oneOf": [_object({"alias": _NAME, "columns": _TEXTS}), {"type": "null"}], "description": "key of the lanes of windows"},
    }
)

_TOKEN: dict[str, Schema] = {
    "name": {"type": "string"},
    "scope": {"enum": list(SCOPES)},
    "relations": _TEXTS | {"description": "`*` for all"},
    "views": _TEXTS | {"description": "`*` for all"},
    "expires": {"type": ["string", "null"], "format": "date-time"},
    "created": {"type": "string", "format": "date-time"},
}

_BODIES: dict[str, Schema] = {
    "Relations": _object({"relations": _list(_ref("Relation"))}),
    "Changes": _object(
        {
            "changes": _list(_CHANGE),
            "source": {"type": "string", "maxLength": MAX_TEXT},
            "epoch": {"type": "integer", "format": "int64"},
            "run": {"type": "string", "maxLength": MAX_TEXT},
            "reset": {"type": "boolean", "default": False},
            "on_error": {"enum": ["reject", "skip"], "default": "reject"},
        },
        "source",
        "epoch",
        "run",
        "reset",
        "on_error",
    ),
    "Receipt": _object(
        {
            "version": _COUNT,
            "applied": _COUNT,
            "ignored": _COUNT,
            "skipped_count": _COUNT,
            "skipped": _list(_REASON) | {"maxItems": MAX_ERRORS},
            "duplicate": {"type": "boolean"},
            "first": _ref("Receipt") | {"description": "for a duplicate of the last batch of its source: the response to the first copy"},
        },
        "first",
    ),
    "Sources": _object({"sources": _list(_SOURCE)}),
    "Staged": _object(
        {
            "stage": {"type": "string"},
            "part": _COUNT,
            "part_rows": _COUNT | {"description": "rows of the part, bad ones included"},
            "parts": _COUNT | {"description": "parts of the stage"},
            "rows": _COUNT | {"description": "rows of the stage"},
            "skipped_count": _COUNT,
            "skipped": _list(_REASON) | {"maxItems": MAX_ERRORS},
        }
    ),
    "Replaced": {"oneOf": [_ref("Receipt"), _ref("Staged")]},
    "ViewDefinition": {"oneOf": [_ref(form) for form in ("SqlView", "JsonView", "UnionView", "ExceptView")]},
    "Plan": _object(
        {
            "class": {"type": "string"},
            "algorithm": {"type": "string"},
            "theorem": {"type": ["string", "null"]},
            "guarantee": {"enum": list(GUARANTEES)},
            "bounds": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "for n rows in all: `space`; `update`: the time of a change, apart from rows that it adds or removes; "
                "`delay`: the time from one row to the next",
            },
            "order": _list({"type": "string"})
            | {"description": "the order in which the aliases of a row are found; a single structure finds all of them at once"},
            "notes": _list({"type": "string"}),
        }
    ),
    "Explanation": _object(
        {
            "plan": _ref("Plan"),
            "alternatives": _list(_ref("Plan")),
            "natural": _NATURAL | {"description": "properties of a join on equalities only"},
            "measured": {"type": "object", "additionalProperties": _STATISTICS, "description": "live views with this definition, by name"},
        },
        "natural",
        "measured",
    ),
    "View": _object(
        {
            "name": _NAME,
            "state": {"enum": ["building", "live", "failed"]},
            "version": _COUNT,
            "empty": {
                "type": ["boolean", "null"],
                "description": "null if the view is not live, if it takes over a second to find out, and, in a list, if rows must be read",
            },
            "definition": _ref("ViewDefinition"),
            "plan": _ref("Plan"),
            "shape": _SHAPE,
            "statistics": _STATISTICS,
            "progress": {"type": "number", "minimum": 0, "maximum": 1},
            "problem": _ref("Problem"),
        },
        "progress",
        "problem",
    ),
    "Views": _object({"views": _list(_ref("View"))}),
    "Page": _object({"version": _COUNT, "rows": _list(_ROW), "next": {"type": ["string", "null"]}}),
    "Count": _object({"version": _COUNT, "count": _COUNT}),
    "ReadingForm": _object(
        {
            "parts": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 8, "description": "maximum number of parts"},
            "hold": {"type": "integer", "minimum": 1, "maximum": 3600, "default": 600, "description": "seconds to keep the version"},
            "version": _COUNT | {"description": "a version that a cursor pins; default: the newest"},
        },
        "parts",
        "hold",
        "version",
    ),
    "Reading": _object(
        {
            "id": {"type": "string"},
            "version": _COUNT,
            "token": {"type": ["string", "null"]},
            "cursors": _TEXTS,
            "expires": {"type": "string", "format": "date-time"},
        }
    ),
    "ChangesEnd": _object({"version": _COUNT, "token": {"type": "string"}, "rows": _COUNT | {"description": "changes up to `version`"}}),
    "Tokens": _object({"tokens": _list(_ref("Token"))}),
    "Token": _object(_TOKEN),
    "NewToken": _object(_TOKEN | {"token": {"type": "string", "description": "the text to send as `Authorization: Bearer …`"}}),
    "Query": _object(
        {
            "sql": {"type": "string", "description": "one SELECT, in DuckDB's dialect"},
            "version": {"type": ["integer", "null"], "minimum": 0, "description": "a version that a cursor pins; default: the newest"},
        },
        "version",
    ),
    "BackupForm": _object(
        {
            "target": {"type": "string", "description": "absolute path of a new or empty folder on the server"},
            "since": {"type": "string", "description": "the folder of an earlier backup: only newer data is written"},
        },
        "since",
    ),
    "Backup": _object(
        {
            "state": {"enum": ["none", "running", "done", "failed"]},
            "id": {"type": "string", "description": "id of this backup, also in its backup.json"},
            "target": {"type": "string"},
            "since": {"type": ["string", "null"]},
            "started": {"type": "string", "format": "date-time"},
            "ended": {"type": "string", "format": "date-time"},
            "progress": {"type": "number", "minimum": 0, "maximum": 1},
            "version": _COUNT | {"description": "the version that the backup contains, once it is complete"},
            "bytes": _COUNT | {"description": "bytes written, once it is complete"},
            "problem": {"type": "string", "description": "why it failed"},
            "previous": {"$ref": "#/components/schemas/Backup"},
        },
        "id",
        "target",
        "since",
        "started",
        "ended",
        "progress",
        "version",
        "bytes",
        "problem",
        "previous",
    ),
    "Health": _object({"status": {"type": "string"}, "stage": {"type": "string"}, "progress": {"type": "number"}}, "stage", "progress"),
    "Status": {"type": "object", "required": ["state", "version", "software", "relations", "views", "memory", "disk", "warnings"]},
    "Window": {"type": "object", "required": ["version", "lanes"]},
    "Problem": _object(
        {
            "type": {"type": "string", "pattern": "^/problems/[a-z-]+$"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
        },
        closed=False,
    ),
}


@cache
def schemas() -> dict[str, Schema]:
    """Return all schemas by name, built at the first call, in 20 ms. Those of definitions are generated from the models that validate
    them."""
    models = (RelationDefinition, RelationPatch, SqlView, JsonView, UnionView, ExceptView, Deletion, TokenForm)
    template = "#/components/schemas/{model}"
    made = models_json_schema([(model, "validation") for model in models], ref_template=template, schema_generator=_Untitled)
    forms: dict[str, Schema] = made[1]["$defs"]
    relation = _object({"name": _NAME} | forms["RelationDefinition"]["properties"] | {"rows": _COUNT}, "retain")
    named = forms | {"Relation": relation} | _BODIES
    describe(named, {**DEFINITIONS, **ANSWERS})
    return named


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
SOURCES = {"sources": [{"name": "pms", "run": "3f0c", "epoch": 17, "version": 42, "time": "2026-01-01T12:00:00.250000Z"}]}
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
VIEW = {
    "name": "clashes",
    "state": "live",
    "version": 42,
    "empty": False,
    "definition": VIEW_JSON,
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
    {"sql": "SELECT room, sum(price) AS nights FROM relation.bookings GROUP BY room", "version": 42},
)
QUERY_PAGE = {"version": 42, "rows": [{"room": "A", "nights": "12.50"}], "next": None}
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
