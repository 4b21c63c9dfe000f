"""Problems: every error that leaves the service, as RFC 9457 has it.

One table names each type of problem with its status, its title and the text of its page; one
exception carries a problem from where it is found to whoever renders it.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Kind(NamedTuple):
    """A type of problem: what `/problems/{type}` tells, and what its answers carry."""

    type: str
    status: int
    title: str
    meaning: str
    remedy: str
    retry_after: int | None = None  # seconds; sent as Retry-After


_KINDS = (
    Kind(
        "malformed-body",
        400,
        "The body cannot be read",
        "The body is not what its Content-Type says: broken JSON, a truncated Arrow stream, a CSV line with too many fields. "
        "`detail` names the line or the position. Nothing of the body was applied.",
        "Mend the body at the place named and send it again whole.",
    ),
    Kind(
        "bad-parameter",
        400,
        "A query parameter or field is wrong",
        "A query parameter (or the field of the same name in a JSON body) is unknown, has a value out of its range, is given twice "
        "with different values, or lacks another that it needs. `detail` names it.",
        "See the operation's parameters in /docs. Parameters that are not listed there are refused, so that a misspelt one is not"
        " passed over.",
    ),
    Kind(
        "bad-cursor",
        400,
        "This is not a cursor of this resource",
        "The cursor was not given out by this service for this view or relation, or was changed on its way.",
        "Take the cursor from `next`, or the whole address from the Link header, of the page before; or begin again without one.",
    ),
    Kind(
        "bad-token",
        400,
        "This is not a token of this view's changes",
        "The token was given out for another view, by another data folder, or was changed on its way.",
        "Use the token of the last `progress` record of this view; or begin again with `snapshot=true`.",
    ),
    Kind(
        "unauthorized",
        401,
        "Who are you?",
        "The request needs a token and carries none that the service knows.",
        "Send `Authorization: Bearer …` with a token of the right scope.",
    ),
    Kind(
        "forbidden",
        403,
        "The request may not do that",
        "The request asks for a host or comes from a web page that is not this service's own, or its token does not cover the operation. "
        "While there are no tokens, `Host` must be a loopback name (localhost, 127.0.0.1, [::1]) and `Origin`, where a browser sends one, "
        "must be that of the service's own pages: any other page in a browser on this machine could else read and change everything. "
        "`detail` says which it is. Nothing of the body was read.",
        "Use http://localhost or http://127.0.0.1 with the port of the service, from its own pages or from a client that is not a "
        "browser; let a proxy in front of it set Host to a loopback name. If `detail` names a scope, use a token that has it.",
    ),
    Kind(
        "not-found",
        404,
        "There is nothing by this name",
        "The path names a relation, a view, a kind of problem or a page that does not exist (or no longer does).",
        "List what there is with GET /v1/relations and GET /v1/views; all paths are in /docs.",
    ),
    Kind(
        "method-not-allowed",
        405,
        "This path does not take this method",
        "The path exists, the method is not one of those in the Allow header.",
        "Use one of the methods in the Allow header; see /docs.",
    ),
    Kind(
        "not-acceptable",
        406,
        "No media type that you accept can be made here",
        "None of the media types of the Accept header is made by this resource. `available` lists those that are.",
        "Accept one of `available`, or */*.",
    ),
    Kind(
        "unsupported-media-type",
        415,
        "This media type or encoding is not read here",
        "The body's Content-Type (or Content-Encoding) is not one that this operation reads. `supported` lists those that are.",
        "Send the body as one of `supported`, and name it in Content-Type.",
    ),
    Kind(
        "definition-differs",
        409,
        "There is another definition under this name",
        "A relation or view of this name exists with another definition. Definitions are compared after parsing; they are never "
        "changed in place.",
        "Take another name, or DELETE the old one first.",
    ),
    Kind(
        "relation-in-use",
        409,
        "Views still use this relation",
        "The relation takes part in the views that `views` lists, and cannot go before them.",
        "DELETE those views first.",
    ),
    Kind(
        "source-reset",
        409,
        "Another run numbers the epochs of this source",
        "The source is known with another `run`. A new run usually starts its epochs again (a Spark query with a new checkpoint "
        "does), and its "
        "batches would vanish as duplicates. So nothing was applied.",
        "If the new run is meant to take the source over, send `reset=true`; else give it a source name of its own.",
    ),
    Kind(
        "not-followed",
        409,
        "This view keeps no changes",
        'The view was defined with `"changes": false`, so there is nothing to follow.',
        "Define the view with `changes`, or read its rows.",
    ),
    Kind(
        "snapshot-expired",
        410,
        "The version of this cursor is gone",
        "A version is kept for 60 seconds after the page that pinned it, and not over a restart. The rest of that version can no "
        "longer be read.",
        "Begin again without a cursor, at the newest version.",
    ),
    Kind(
        "token-expired",
        410,
        "The changes after this token are no longer kept",
        "The view keeps a bounded number of changes (`changes` in its definition), and may lose them over a restart. Those after "
        "the token are gone; they are never skipped in silence.",
        "Begin again with `snapshot=true`: every row at one version, then the changes after it.",
    ),
    Kind(
        "delta-too-large",
        410,
        "One batch changed more rows of this view than it keeps",
        "The changes of one version were beyond the view's `changes` bound. The batch succeeded, the feed was cut at that version.",
        "Begin again with `snapshot=true`; give the view a larger `changes` bound if this happens often.",
    ),
    Kind(
        "reader-too-slow",
        410,
        "The feed ran away from this reader",
        "The reader took the changes slower than they came until the feed no longer kept the next one.",
        "Go on from the token if it is still kept, else begin again with `snapshot=true`; read faster or give the view a larger "
        "`changes` bound.",
    ),
    Kind(
        "body-too-large",
        413,
        "The body is too large",
        "The body is larger than the service takes in one request (`limit` bytes; `--max-body`, LIVEJOIN_MAX_BODY). Nothing of it"
        " was applied.",
        "Send several smaller batches, or raise the limit.",
    ),
    Kind(
        "bad-rows",
        422,
        "Some rows are bad",
        "`error_count` changes of the batch are bad; `errors` lists the first 100 by `index` (from 0, headers not counted), "
        "`column` and `reason`. The whole batch was rejected.",
        "Mend those rows; or send `on_error=skip` to apply the good ones and get the bad ones back.",
    ),
    Kind(
        "bad-definition",
        422,
        "The definition is wrong",
        "The definition of the relation or view does not hold together. `detail` names the part.",
        "Mend the part named; the forms are in /docs.",
    ),
    Kind(
        "unknown-relation",
        422,
        "No such relation",
        "The body names a relation that is not registered; a view is none. Nothing was applied.",
        "Register it first with PUT /v1/relations/{name}, or mend the name.",
    ),
    Kind(
        "unknown-column",
        422,
        "No such column",
        "The definition names a column or an interval that its relation does not have.",
        "See the relation's columns and intervals with GET /v1/relations/{name}. SQL folds names without quotes to lower case.",
    ),
    Kind(
        "unsupported-query",
        422,
        "This query is not supported",
        "The query is well formed, but a part of it is not something that livejoin keeps live. `detail` names the part and what "
        "to write instead.",
        "Write it as `detail` proposes, or leave that part to the reader of the view.",
    ),
    Kind(
        "bad-query",
        422,
        "The SQL cannot be read",
        "The SQL text is not well formed. `detail` has the position.",
        "Mend the text at that position; the dialect is PostgreSQL's, with `overlaps(x, y)` and `x OVERLAPS y` added.",
    ),
    Kind(
        "infeasible-view",
        422,
        "This view cannot have what is asked of it",
        "The guarantee or the algorithm asked for is out of reach for this view. `theorem` names what is in the way.",
        "Ask for a weaker guarantee or for `auto`; POST /v1/explain lists the plans that are possible.",
    ),
    Kind(
        "internal",
        500,
        "Something broke in the service",
        "The service met an error of its own. The answer tells a request id and nothing else; the log tells the rest under that id.",
        "Look the request id up in the service's log, and report what stands there.",
    ),
    Kind(
        "not-yet",
        501,
        "This part is not built yet",
        "The path, option or algorithm belongs to a later version of livejoin.",
        "Do without it, or come back with a newer version.",
    ),
    Kind(
        "too-busy",
        429,
        "Too many batches are waiting",
        "Changes come faster than they can be applied, and the queue is full. Nothing of this batch was applied.",
        "Wait as long as Retry-After says and send the batch again; larger batches go faster than many small ones.",
        1,
    ),
    Kind(
        "view-building",
        503,
        "The view is still being built",
        "The view was registered and its structures are being loaded. `progress` says how far, from 0 to 1.",
        "Try again after Retry-After; GET /v1/views/{name} tells the progress.",
        1,
    ),
    Kind(
        "view-failed",
        503,
        "The view could not be built or kept",
        "The structures of this view failed; GET /v1/views/{name} shows the problem. The relations are whole.",
        "DELETE the view and register it again; if it fails again, look into the service's log.",
    ),
    Kind(
        "recovering",
        503,
        "The service is starting or ending",
        "The service is loading its data folder or compiling its kernels (`progress` says how far, from 0 to 1), or it is shutting down.",
        "Try again after Retry-After; /readyz answers 200 once it is ready.",
        1,
    ),
    Kind(
        "no-room",
        503,
        "There is no room in memory",
        "A relation, a view or a batch does not fit into what the process may reserve, or into the arrays of a relation or a view. "
        "Nothing of it was applied.",
        "DELETE what is not needed, split the relation or the view, or give the process more memory and address space.",
        10,
    ),
    Kind(
        "disk-full",
        503,
        "The disk does not take the batch",
        "The batch could not be written to the data folder, so it was not applied.",
        "Make room on the disk of the data folder and send the batch again.",
        10,
    ),
)

CATALOGUE: dict[str, Kind] = {kind.type: kind for kind in _KINDS}


class Problem(Exception):
    """One problem met, of a type in the catalogue.

    `extensions` are further members of the JSON form (`errors`, `views`, `theorem`, `progress` …). `headers` go out with
    the answer; add to them what only the finder knows (`Allow`).
    """

    def __init__(self, type: str, detail: str, **extensions: Any) -> None:
        super().__init__(type, detail)
        self.kind = CATALOGUE[type]
        self.type = type
        self.status = self.kind.status
        self.title = self.kind.title
        self.detail = detail
        self.extensions = extensions
        self.headers: dict[str, str] = {}
        if self.kind.retry_after is not None:
            self.headers["Retry-After"] = str(self.kind.retry_after)

    def __str__(self) -> str:
        return f"{self.type}: {self.detail}"

    def to_json(self) -> dict[str, Any]:
        """The `application/problem+json` form."""
        head = {"type": f"/problems/{self.type}", "title": self.title, "status": self.status, "detail": self.detail}
        return head | self.extensions
