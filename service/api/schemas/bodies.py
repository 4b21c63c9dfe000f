"""The JSON schemas of the bodies, by name."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from livejoin.wire.batch import MAX_ERRORS, OP_NAMES, UPSERT
from livejoin.wire.json import MAX_TEXT
from livejoin.wire.schema import RelationDefinition, RelationPatch
from service.access.access_token import SCOPES, TokenForm
from service.api.descriptions.answers import ANSWERS
from service.api.descriptions.definitions import DEFINITIONS
from service.api.descriptions.describing import describe
from service.api.schemas.dashboard import STATUS, WINDOW
from service.api.schemas.parts import COUNT, FLAG, MEASURE, MOMENT, NAME, ROW, TEXT, TEXTS, Schema, list_of, map_of, object_of, or_null, ref
from service.query.forms import Deletion, ExceptView, JsonView, SqlView, UnionView
from service.query.model import GUARANTEES


class _Untitled(GenerateJsonSchema):
    """Generates pydantic's schemas without a title for each field."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


_REASON = object_of({"index": COUNT, "column": {"type": ["string", "null"]}, "reason": TEXT})
_CHANGE = object_of(
    {
        "relation": TEXT,
        "op": {"enum": list(OP_NAMES), "default": OP_NAMES[UPSERT]},
        "row": ROW,
        "key": {"type": "object", "description": "the key columns of a deleted row"},
    },
    "op",
    "row",
    "key",
)

_SOURCE = object_of(
    {
        "name": TEXT,
        "run": {"type": ["string", "null"]},
        "epoch": {"type": "integer", "format": "int64"},
        "version": {"type": ["integer", "null"], "description": "the version of its last batch; null if unknown, like `time`"},
        "time": {"type": ["string", "null"], "format": "date-time"},
        "relations": list_of(TEXT),
    }
)

_STATISTICS = object_of(
    {
        "intervals": COUNT | {"description": "entries in the view's structures"},
        "bytes": COUNT
        | {"description": "memory of the structures at the newest version, with a share of common structures; without rows of relations"},
        "bytes_per_row": MEASURE | {"description": "`bytes` divided by the rows of the view's relations"},
        "groups": MEASURE | {"description": "groups that have rows, including those that HAVING excludes; null without groups"},
        "sums_out_of_range": MEASURE | {"description": "sums that are null because they do not fit their type; null without groups"},
        "bits_per_tuple": MEASURE | {"description": "size of quadtrees in their compact form, without the slots of rows"},
        "update_seconds": object_of({"p50": MEASURE, "p99": MEASURE}),
        "steps_per_update": MEASURE | {"description": "steps for the delta of a changed row, the rows of the delta included"},
        "flips_per_update": MEASURE | {"description": "rows or prefixes that a changed row made live or dead"},
        "rows_read": COUNT | {"description": "rows read by all readers since the view was built"},
        "steps_per_row": MEASURE | {"description": "nodes, entries and candidates that readers visited, per row"},
        "delay_steps": object_of({"max": COUNT | {"description": "largest number of steps between two rows"}}),
        "dead_ends": {"type": ["integer", "null"]}
        | {"description": "nodes, rows and candidates visited without result; null: interval-tree, box-tree count only candidates"},
        "counters": map_of(COUNT)
        | {
            "description": "further counts of the algorithm in all readings, by name; tree-tracker: lookups, removed, no_goods, forgotten; "
            "minesweeper and elimination: probes, outputs, pairs (of a triangle), lookups, constraints, resets, forgotten; "
            "intersect: lookups, probes, outputs; bow-tie: these, ranges (the most that waited, summed over readings), forgotten; "
            "lqdag: looked_up, excluded, and with UNION or EXCEPT repeated (rows that an earlier SELECT had)"
        },
    },
    closed=False,
)

_NATURAL = object_of(
    {
        "class": {"type": "string", "description": "the class, as in the plans"},
        "variables": map_of(TEXTS)
        | {
            "description": "columns that must be equal, named by the first one; several columns of an alias (`a.x a.y`) form a composite",
        },
        "elimination_order": or_null(TEXTS) | {"description": "nested, of the variables; null: not beta-acyclic"},
        "join_tree": or_null(list_of(object_of({"aliases": TEXTS, "by": TEXTS})))
        | {"description": "edges of the join tree: two aliases and their common variables; null: cyclic, or a product"},
        "agm": object_of(
            {
                "exponent": {"type": "number", "description": "exponent of n, if all relations have n rows"},
                "rows": {"type": "number", "description": "maximum number of rows of the view, for relations of their present size"},
                "cover": map_of({"type": "number"}) | {"description": "weight x of each alias: the product of all |R|^x is the bound"},
            },
            "rows",
        ),
    }
)

_SHAPE = object_of(
    {
        "aliases": list_of(
            object_of({"name": NAME, "relation": NAME, "key": TEXTS, "join_key": TEXTS, "optional": FLAG})
        ),
        "columns": list_of(object_of({"name": TEXT, "kind": TEXT, "alias": {"type": ["string", "null"]}}))
        | {
            "description": "columns of the rows; `kind`: `column` (of an alias), `intersection_start`, `intersection_end`, `gaps_start`, "
            "`gaps_end`, `coverage_start`, `coverage_end`, `duration`, or `computed`"
        },
        "dimensions": list_of(list_of(object_of({"alias": NAME, "interval": NAME, "type": TEXT, "bounds": TEXT})))
        | {"description": "joined intervals, grouped by those that overlap one another"},
        "key": or_null(object_of({"alias": NAME, "columns": TEXTS})) | {"description": "key of the lanes of windows"},
    }
)

_TOKEN: dict[str, Schema] = {
    "name": TEXT,
    "scope": {"enum": list(SCOPES)},
    "relations": TEXTS | {"description": "`*` for all"},
    "views": TEXTS | {"description": "`*` for all"},
    "expires": {"type": ["string", "null"], "format": "date-time"},
    "created": MOMENT,
}

_BODIES: dict[str, Schema] = {
    "Relations": object_of({"relations": list_of(ref("Relation"))}),
    "Changes": object_of(
        {
            "changes": list_of(_CHANGE),
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
    "Receipt": object_of(
        {
            "version": COUNT,
            "applied": COUNT,
            "ignored": COUNT,
            "skipped_count": COUNT,
            "skipped": list_of(_REASON) | {"maxItems": MAX_ERRORS},
            "duplicate": FLAG,
            "first": ref("Receipt") | {"description": "for a duplicate of the last batch of its source: the response to the first copy"},
        },
        "first",
    ),
    "Sources": object_of({"sources": list_of(_SOURCE)}),
    "Staged": object_of(
        {
            "stage": TEXT,
            "part": COUNT,
            "part_rows": COUNT | {"description": "rows of the part, bad ones included"},
            "parts": COUNT | {"description": "parts of the stage"},
            "rows": COUNT | {"description": "rows of the stage"},
            "skipped_count": COUNT,
            "skipped": list_of(_REASON) | {"maxItems": MAX_ERRORS},
        }
    ),
    "Replaced": {"oneOf": [ref("Receipt"), ref("Staged")]},
    "ViewDefinition": {"oneOf": [ref(form) for form in ("SqlView", "JsonView", "UnionView", "ExceptView")]},
    "Plan": object_of(
        {
            "class": TEXT,
            "algorithm": TEXT,
            "theorem": {"type": ["string", "null"]},
            "guarantee": {"enum": list(GUARANTEES)},
            "bounds": map_of(TEXT)
            | {
                "description": "for n rows in all: `space`; `update`: the time of a change, apart from rows that it adds or removes; "
                "`delay`: the time from one row to the next",
            },
            "order": TEXTS
            | {"description": "the order in which the aliases of a row are found; a single structure finds all of them at once"},
            "notes": TEXTS,
        }
    ),
    "Explanation": object_of(
        {
            "plan": ref("Plan"),
            "alternatives": list_of(ref("Plan")),
            "natural": _NATURAL | {"description": "properties of a join on equalities only"},
            "measured": map_of(_STATISTICS) | {"description": "live views with this definition, by name"},
        },
        "natural",
        "measured",
    ),
    "View": object_of(
        {
            "name": NAME,
            "state": {"enum": ["building", "live", "failed"]},
            "version": COUNT,
            "empty": {
                "type": ["boolean", "null"],
                "description": "null if the view is not live, if it takes over a second to find out, and, in a list, if rows must be read",
            },
            "definition": ref("ViewDefinition"),
            "plan": ref("Plan"),
            "shape": _SHAPE,
            "statistics": _STATISTICS,
            "progress": {"type": "number", "minimum": 0, "maximum": 1},
            "problem": ref("Problem"),
        },
        "progress",
        "problem",
    ),
    "Views": object_of({"views": list_of(ref("View"))}),
    "Page": object_of({"version": COUNT, "rows": list_of(ROW), "next": {"type": ["string", "null"]}}),
    "Count": object_of({"version": COUNT, "count": COUNT}),
    "ReadingForm": object_of(
        {
            "parts": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 8, "description": "maximum number of parts"},
            "hold": {"type": "integer", "minimum": 1, "maximum": 3600, "default": 600, "description": "seconds to keep the version"},
            "version": COUNT | {"description": "a version that a cursor pins; default: the newest"},
        },
        "parts",
        "hold",
        "version",
    ),
    "Reading": object_of(
        {
            "id": TEXT,
            "version": COUNT,
            "token": {"type": ["string", "null"]},
            "cursors": TEXTS,
            "expires": MOMENT,
        }
    ),
    "ChangesEnd": object_of({"version": COUNT, "token": TEXT, "rows": COUNT | {"description": "changes up to `version`"}}),
    "Tokens": object_of({"tokens": list_of(ref("Token"))}),
    "Token": object_of(_TOKEN),
    "NewToken": object_of(_TOKEN | {"token": {"type": "string", "description": "the text to send as `Authorization: Bearer …`"}}),
    "Query": object_of(
        {
            "sql": {"type": "string", "description": "one SELECT, in DuckDB's dialect"},
            "version": {"type": ["integer", "null"], "minimum": 0, "description": "a version that a cursor pins; default: the newest"},
        },
        "version",
    ),
    "BackupForm": object_of(
        {
            "target": {"type": "string", "description": "absolute path of a new or empty folder on the server"},
            "since": {"type": "string", "description": "the folder of an earlier backup: only newer data is written"},
        },
        "since",
    ),
    "Backup": object_of(
        {
            "state": {"enum": ["none", "running", "done", "failed"]},
            "id": {"type": "string", "description": "id of this backup, also in its backup.json"},
            "target": TEXT,
            "since": {"type": ["string", "null"]},
            "started": MOMENT,
            "ended": MOMENT,
            "progress": {"type": "number", "minimum": 0, "maximum": 1},
            "version": COUNT | {"description": "the version that the backup contains, once it is complete"},
            "bytes": COUNT | {"description": "bytes written, once it is complete"},
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
    "Health": object_of({"status": TEXT, "stage": TEXT, "progress": {"type": "number"}}, "stage", "progress"),
    "Status": STATUS,
    "Window": WINDOW,
    "Problem": object_of(
        {
            "type": {"type": "string", "pattern": "^/problems/[a-z-]+$"},
            "title": TEXT,
            "status": {"type": "integer"},
            "detail": TEXT,
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
    shown = {"name": NAME} | forms["RelationDefinition"]["properties"] | {"rows": COUNT}
    patched = object_of(shown | {"expired_rows": COUNT}, "retain", "expired_rows")
    named = forms | {"Relation": object_of(shown, "retain"), "PatchedRelation": patched} | _BODIES
    describe(named, {**DEFINITIONS, **ANSWERS})
    return named
