"""The fields of what clients define: relations, views, access tokens."""

from __future__ import annotations

from collections.abc import Mapping

TIME = "by RFC 3339, in UTC"

_INTERVALS = "the intervals, as `alias.interval`; if there are several, they overlap pairwise"
_BEGINNING = "the beginning of the names of the columns, `<as>_start` and `<as>_end`"
_ONLY = "that the token is for, by name, at most 1,000; `*` for all. Null: all, or none if `{}` is given"
_OPTIONS = {
    "algorithm": "the algorithm that maintains the view; `auto`: the one with the best guarantee. POST /v1/explain lists those that are "
    "correct for the view",
    "groups": "the most groups that the view may have before it fails; only for views with groups",
    "guarantee": "the least guarantee that is acceptable: `strict` bounds the time of a change and the delay between rows, `delay` only "
    "the latter, `best-effort` neither",
    "changes": "the most changes to keep for followers; false: none, and the view cannot be followed",
}
_SIDES = "2 to 8 operands, which have the same number of columns, of the same types"
_BOTH = "the two operands, which have the same number of columns, of the same types"
_JOINED = {
    "from": "the relations, at most 8 in the view, by alias",
    "join": "the conditions between aliases, all of which must hold",
    "where": "the filters of single aliases, all of which must hold",
}
_SELECT = _JOINED | {
    "exists": "parts that must have a row that meets their conditions",
    "not_exists": "parts that must have no such row",
    "left": "optional parts: their columns are null where no row meets their conditions",
    "full": "one relation to join so that its rows without partner are in the view too, with null in the other columns; null: none",
    "select": "the columns of the view: `alias.column`, `alias.column as name`, or what is computed. Absent: all columns of all relations, "
    "named `alias.column`",
}
_RETAIN = "when rows are deleted because of their age; null: never"
_RELATION = {
    "columns": "the columns, in order",
    "key": "the names of the columns of the primary key, which are not nullable",
    "intervals": "the intervals by name, which is not that of a column; views join on them by `overlaps`",
    "retain": _RETAIN,
}
_SHOWN = _RELATION | {"name": "the name of the relation", "rows": "the number of its rows"}
_TOKEN = {
    "name": "the name of the token, which lists and the audit log show",
    "scope": "what it allows: `read`; `write`, which includes `read`; `admin`, which is everything",
    "expires": f"when it becomes invalid, {TIME}; null: never",
    "created": f"when it was created, {TIME}",
}

DEFINITIONS: Mapping[str, Mapping[str, str]] = {
    # definitions of relations
    "RelationDefinition": _RELATION,
    "Relation": _SHOWN,
    "PatchedRelation": _SHOWN | {"expired_rows": "how many rows are older than the retention of the patch allows, and are deleted next"},
    "Relations": {"relations": "the relations that the access token covers, by name"},
    "RelationPatch": {
        "add_columns": "columns to add, which must be nullable: existing rows have null in them",
        "add_intervals": "intervals to add, by name; they must be valid for the existing rows",
        "nullable": "columns that may be null from now on; not those of the key, nor those by which a view joins",
        "retain": f"{_RETAIN}. Absent: as before",
    },
    "Retention": {
        "column": "a column of type timestamp or date; rows in which it is null are kept",
        "for": "the age at which rows are deleted, as an ISO 8601 duration in weeks, days, hours, minutes and seconds, longer than 0",
    },
    "Column": {
        "name": "1 to 63 characters without dots, double quotes and control characters; not `_op`",
        "type": "the type of the values; int64, float64, decimal, timestamp and date can be the ends of intervals",
        "nullable": "whether values may be null",
        "precision": "digits of a decimal, in all",
        "scale": "digits of a decimal after the decimal point, at most `precision`",
        "zone": "a time zone of the IANA database, such as Europe/Berlin: times without an offset are local times there. Absent: such "
        "times are refused",
    },
    "Interval": {
        "start": "the column with the start; null there: unbounded in the past",
        "end": "the column with the end, of the same type; null there: unbounded, until further notice",
        "bounds": "which ends belong to the interval: `[` and `]` include one, `(` and `)` exclude it",
        "at": "the column with the point, an interval that starts and ends there; null there: it overlaps nothing",
    },
    # definitions of views
    "SqlView": _OPTIONS | {"sql": "one SELECT in PostgreSQL's dialect, extended by `overlaps(x, y)`, `x OVERLAPS y` and others"},
    "JsonView": _OPTIONS
    | _SELECT
    | {
        "group": "the columns by which rows are grouped: `alias.column`, `alias.column as name`, or a truncated time; the view then has a "
        "row for each group, with these columns and those of `aggregate`",
        "aggregate": "the aggregates of each group; without `group`, those of all rows",
        "having": "filters of groups by the columns of the view, all of which must hold",
        "distinct": "whether rows that are equal in all columns appear once",
        "latest": "keep only the latest rows, of a view of one relation; null: all",
    },
    "UnionView": _OPTIONS | {"union": _SIDES},
    "ExceptView": _OPTIONS | {"except": _BOTH},
    "Select": _SELECT,
    "Part": _JOINED | {"join": "the conditions between the aliases of the part, and with those outside it; all must hold"},
    "Union": {"union": _SIDES},
    "Except": {"except": _BOTH},
    "Retain": {
        "retain_rows": "the most rows of changes to keep; older ones are dropped first",
        "retain_bytes": "the most memory for them, in bytes",
    },
    "Equal": {"equal": "two columns, as `alias.column`"},
    "Overlaps": {"overlaps": "two intervals, as `alias.interval`"},
    "AtMost": {"at_most": "two columns, as `alias.column`: the first is at most the second"},
    "Less": {"less": "two columns, as `alias.column`: the first is less than the second"},
    "NotEqual": {"not_equal": "two columns, as `alias.column`"},
    "Within": {
        "within": "two columns, as `alias.column`",
        "distance": "the largest difference, not negative: in microseconds or an ISO 8601 duration for timestamps, in days for dates, "
        "otherwise in the unit of the columns",
    },
    "Cross": {"cross": "two aliases"},
    "IsAsOf": {"as_of": "a column of the alias that is searched, `<`, `<=`, `>` or `>=`, and a column of the other alias"},
    "Where": {
        "column": "`alias.column`; in `having` the name of a column of the view, in a delete that of a column of the relation",
        "op": "the operator; `in` takes a list, `like` a pattern in which `%` is any text and `_` any character",
        "value": "what to compare with, in the form that the type of the column has in rows",
    },
    "Or": {"or": "the entries, at least one"},
    "And": {"and": "the entries, at least one"},
    "Not": {"not": "the entry"},
    "Intersection": {"intersection": _INTERVALS, "as": _BEGINNING},
    "Duration": {"duration": _INTERVALS, "as": "the name of the column"},
    "OfDuration": {"duration": _INTERVALS},
    "Gaps": {"gaps": "two intervals, as `alias.interval`", "as": _BEGINNING},
    "Coverage": {"coverage": "two intervals, as `alias.interval`; one with groups", "as": _BEGINNING},
    "Computed": {"expression": "SQL over the columns of one row, such as `b.price * b.nights`", "as": "the name of the column"},
    "Trunc": {
        "trunc": "the unit; weeks begin on Monday",
        "of": "a column of type timestamp or date, as `alias.column`",
        "as": "the name of the column",
    },
    "Aggregated": {
        "count": "the number of rows (`*`), or of values that are not null",
        "count_distinct": "the number of different values that are not null",
        "sum": "the sum of the values that are not null; null if there are none, or if it does not fit its type",
        "avg": "the mean of the values that are not null; null if there are none",
        "min": "the least value; null if there are none",
        "max": "the greatest value; null if there are none",
        "as": "the name of the column",
    },
    "LatestRows": {
        "by": "the columns, as `alias.column`, of whose values each combination keeps its rows; empty: rows are kept of all rows together",
        "order": "the column, as `alias.column`, by which rows are ordered",
        "descending": "whether the greatest values come first",
        "rows": "how many rows to keep of each combination",
    },
    # access tokens
    "Tokens": {"tokens": "the tokens, by name, without their texts"},
    "Token": _TOKEN,
    "NewToken": _TOKEN,
    "TokenForm": {
        "scope": _TOKEN["scope"],
        "name": "1 to 63 letters, digits, dots, hyphens and underscores, beginning with a letter or a digit; lists and the audit log "
        "show it",
        "relations": f"the relations {_ONLY.format('views')}",
        "views": f"the views {_ONLY.format('relations')}",
        "expires": "when it becomes invalid, by RFC 3339 with an offset, such as 2027-01-01T00:00:00Z, in the future; null: never",
    },
}
