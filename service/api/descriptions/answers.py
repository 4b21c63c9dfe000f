"""The fields of batches, and of what the service answers."""

from __future__ import annotations

from collections.abc import Mapping

from service.api.descriptions.definitions import TIME

_VERSION = "the version of the service's data at which this was read"
_BATCH = {
    "source": "the sender, which numbers its batches by `epoch`: a repeated batch is recognized as a duplicate. Requires `epoch`; names "
    "that begin with `livejoin.` are reserved for the service",
    "epoch": "the number of this batch, which increases within its source; requires `source`",
    "run": "who numbers the epochs, such as the id of a query; a different one than before is refused with `source-reset`, unless `reset` "
    "is true. Absent: a run of its own",
    "reset": "whether a new `run` may take over the source; its epochs then start again. Requires `run`",
    "on_error": "`reject` the batch if a row is invalid, or `skip` invalid rows and return them",
}
_REASONS = {
    "index": "the position of the row in the batch as it was sent, from 0; header lines are not counted",
    "column": "the invalid column; null if it is the whole row",
    "reason": "what is wrong; `key-exists` for an insert whose key exists",
}
_SKIPPED = {
    "skipped_count": "the number of invalid rows that were skipped",
    "skipped": "the first 100 of them",
    **{f"skipped.{name}": text for name, text in _REASONS.items()},
}
_STATISTICS = {
    "update_seconds": "how long the view takes to follow a version, in seconds, since it was built",
    "update_seconds.p50": "the median, to within 10 %; null before the first change",
    "update_seconds.p99": "the 99th percentile, to within 10 %; null before the first change",
    "delay_steps": "work between two rows of a reading",
}

ANSWERS: Mapping[str, Mapping[str, str]] = {
    # changes
    "Changes": _BATCH
    | {
        "changes": "the changes, in order",
        "changes.relation": "the relation that changes",
        "changes.op": "`insert` requires a new key, `upsert` inserts or replaces the row with this key, `delete` needs only `key`, "
        "`truncate` deletes all rows of the relation",
    },
    "Deletion": _BATCH
    | {
        "where": "the conditions, at least one, all of which a row must meet to be deleted",
        "on_error": "has no effect: there are no rows that could be invalid",
    },
    "Receipt": _SKIPPED
    | {
        "version": "the version that the batch has made; of a duplicate, the newest version",
        "applied": "changes that were applied, including those that a later one of the batch replaces",
        "ignored": "deletes of keys that did not exist",
        "duplicate": "whether this epoch of the source had been applied before, so that nothing was changed",
    },
    "Staged": _SKIPPED | {"stage": "the name of the stage", "part": "the number of the part"},
    "Sources": {
        "sources": "the sources that are remembered, by name",
        "sources.name": "the name of the source",
        "sources.run": "the run of its last batch; null if that had none",
        "sources.epoch": "the epoch of its last batch",
        "sources.time": f"when that was applied, {TIME}; null if unknown",
    },
    # views
    "Plan": {
        "class": "the class of the query, which determines the algorithms that are correct for it",
        "algorithm": "the algorithm that maintains the view",
        "theorem": "the result in the literature that gives the bounds, or says why they cannot be better; null if there is none",
        "guarantee": "`strict` bounds the time of a change and the delay between rows, `delay` only the latter, `best-effort` neither",
        "notes": "what to know about this plan, such as how a condition was understood",
    },
    "Explanation": {
        "plan": "the plan that a registration would choose",
        "alternatives": "the plans of the other algorithms that are correct for the view",
        "natural.join_tree.aliases": "the two aliases",
        "natural.join_tree.by": "the variables that they have in common",
        "natural.agm": "the bound of Atserias, Grohe and Marx on the number of rows",
        **{f"measured.{name}": text for name, text in _STATISTICS.items()},
    },
    "View": {
        "name": "the name of the view",
        "state": "`building`: not readable yet; `live`: readable, and maintained with each change; `failed`: no longer, see `problem`",
        "version": _VERSION,
        "definition": "the definition as it was registered",
        "plan": "how the view is maintained",
        "shape": "the structure of its rows; all parts are empty if the definition was refused after an upgrade",
        "shape.aliases": "the aliases that a row has",
        "shape.aliases.name": "the alias",
        "shape.aliases.relation": "its relation",
        "shape.aliases.key": "the columns of the relation's primary key",
        "shape.aliases.join_key": "the columns that are joined by equality with other aliases",
        "shape.aliases.optional": "whether the alias can be missing in a row, as on the optional side of a LEFT JOIN",
        "shape.columns.name": "the name of the column",
        "shape.columns.kind": "what the column is, one of those listed at `columns`",
        "shape.columns.alias": "the alias of the column; null if it is computed",
        "shape.dimensions.alias": "the alias of the interval",
        "shape.dimensions.interval": "the name of the interval in its relation",
        "shape.dimensions.type": "the type of its ends; `decimal` with precision and scale",
        "shape.dimensions.bounds": "which ends belong to the interval",
        "shape.key.alias": "the alias whose join key divides the rows into lanes",
        "shape.key.columns": "the columns of this join key",
        "statistics": "what the structures of the view hold, and what changes and readings cost, since the view was built",
        **{f"statistics.{name}": text for name, text in _STATISTICS.items()},
        "progress": "how much of the view is built, from 0 to 1, while it is `building`",
        "problem": "why the view is `failed`",
    },
    "Views": {"views": "the views that the access token covers, by name"},
    # rows and their changes
    "Page": {
        "version": _VERSION,
        "rows": "the rows, at most `limit`",
        "next": "the `cursor` of the next page, valid for 60 s (`--pin-idle`); null if there are no more rows",
    },
    "Count": {"version": _VERSION, "count": "the number of rows"},
    "Reading": {
        "id": "the id by which DELETE /v1/readings/{id} ends the reading",
        "version": "the version that all parts are read at, which is kept until `expires`",
        "token": "what to pass as `since` in order to follow the view from this version on; null if the view keeps no changes",
        "cursors": "one cursor for each part; together they give every row once",
        "expires": f"when the version is released, {TIME}",
    },
    "ChangesEnd": {
        "version": "the last version of these changes",
        "token": "the token of this version, to pass as `until`, and then as `since`",
    },
    # operations
    "Backup": {
        "state": "`none`: there has been none since the start of the service; `running`, `done`, `failed`",
        "target": "the folder in which it is made",
        "since": "the folder of the earlier backup on which it builds; null if it is a full one",
        "started": f"when it was begun, {TIME}",
        "ended": f"when it was done or had failed, {TIME}",
        "progress": "how much is written, from 0 to 1; it is 1 only once the backup is done",
        "previous": "the backup before this one",
    },
    "Health": {
        "status": "`alive` or `ready`",
        "stage": "what the service is doing until it is ready; then `ready`",
        "progress": "how much of this stage is done, from 0 to 1",
    },
    "Problem": {
        "type": "the type, which is also the path of a page that says what it means and what to do",
        "title": "the type in words",
        "status": "the HTTP status",
        "detail": "what was wrong with this request, in a sentence",
    },
}
