"""The schemas of what the dashboard reads: the state of the service, and the windows of a view."""

from __future__ import annotations

from service.access.access_token import SCOPES
from service.api.schemas.parts import COUNT, FLAG, MEASURE, MOMENT, NAME, ROW, TEXT, TEXTS, Schema, list_of, map_of, object_of, or_null
from service.query.model import GUARANTEES

_SECONDS: Schema = {"type": "number", "minimum": 0}
_SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
_STATES = ["recovering", "ready", "failed", "closed"]

_FEED = object_of({"changes": COUNT, "subscribers": COUNT, "lag": COUNT, "rows": COUNT, "bytes": COUNT})
_VIEW = object_of(
    {
        "state": {"enum": ["building", "live", "failed"]},
        "progress": _SHARE,
        "class": TEXT,
        "algorithm": TEXT,
        "guarantee": {"enum": list(GUARANTEES)},
        "bytes": COUNT,
        "update_p99_seconds": MEASURE,
        "feed": or_null(_FEED),
    }
)
_PIN = object_of(
    {"version": COUNT, "behind": COUNT, "readers": COUNT, "reading": TEXT, "idle_seconds": _SECONDS, "age_seconds": _SECONDS}
)
_PROBLEM = object_of(
    {
        "time": MOMENT,
        "times": {"type": "integer", "minimum": 1},
        "status": {"type": "integer"},
        "method": TEXT,
        "path": TEXT,
        "type": TEXT,
        "detail": TEXT,
        "request_id": TEXT,
    }
)

STATUS = object_of(
    {
        "state": {"enum": _STATES},
        "time": MOMENT,
        "version": COUNT,
        "timeline": COUNT,
        "software": object_of({"name": TEXT, "version": TEXT}),
        "uptime_seconds": _SECONDS,
        "ready_after_seconds": MEASURE,
        "synchronous": {"enum": ["full", "normal"]},
        "max_body": COUNT,
        "token": object_of({"needed": FLAG, "name": TEXT, "scope": {"enum": list(SCOPES)}, "covers_all": FLAG}),
        "relations": map_of(object_of({"rows": COUNT, "bytes": COUNT})),
        "views": map_of(_VIEW),
        "figures": map_of({"type": "integer"}),
        "memory": object_of(dict.fromkeys(("resident", "relations", "views", "changes", "old_versions", "bodies"), COUNT)),
        "disk": object_of(
            {
                **dict.fromkeys(("log", "snapshots", "other", "size", "free"), COUNT),
                "snapshot": or_null(object_of({"version": COUNT, "time": MOMENT, "bytes": COUNT})),
            }
        ),
        "warnings": list_of(object_of({"text": TEXT, "view": NAME}, "view")),
        "pins": list_of(_PIN),
        "problems": list_of(_PROBLEM),
    },
    "pins",
    "problems",
)

_END: Schema = {"type": ["number", "string", "null"]}
_ENDS = object_of({"start": _END, "end": _END})
_KEY: Schema = {"type": ["object", "null"]}
_ROW = object_of({"key": map_of(_KEY), "ends": map_of(map_of(_ENDS)), "row": ROW})

WINDOW = object_of(
    {
        "version": COUNT,
        "extent": list_of(object_of({"start": _END, "end": _END, "most": or_null(_ENDS)})),
        "keys": object_of({"columns": TEXTS, "from": COUNT, "of": COUNT, "whole": FLAG}),
        "lanes": list_of(object_of({"key": _KEY, "more": FLAG, "rows": list_of(_ROW)})),
    },
    "extent",
    "keys",
)
