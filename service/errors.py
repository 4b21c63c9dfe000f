"""Problems: every error that the service returns, in the form of RFC 9457.

One table lists each type of problem with its status, title and page; one exception carries a problem from where it is detected to where it
is rendered.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Kind(NamedTuple):
    """A type of problem: the content of `/problems/{type}` and of its responses."""

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
        "Malformed request body",
        "The body does not match its Content-Type: invalid JSON, a truncated Arrow stream, a CSV line with too many fields. "
        "`detail` gives the line or position. Nothing was applied. A request that is not valid HTTP, such as one without a valid `Host`, "
        "gets the same response.",
        "Fix the body at the position in `detail` and resend all of it.",
    ),
    Kind(
        "bad-parameter",
        400,
        "Invalid parameter",
        "A query parameter (or the field of the same name in a JSON body) is unknown, has an invalid value, appears twice "
        "with different values, or requires another parameter that is missing. `detail` names it.",
        "See the operation's parameters in /docs. Unknown parameters are rejected so that a misspelt one is not silently ignored.",
    ),
    Kind(
        "bad-cursor",
        400,
        "Invalid cursor",
        "The cursor was not issued by this service for this view or relation, or has been altered.",
        "Use the cursor in `next` of the previous page, or the URL in its Link header; or start again without a cursor.",
    ),
    Kind(
        "bad-token",
        400,
        "Invalid token",
        "The token was issued for another view or by another data folder, or has been altered.",
        "Use the token of the last `progress` record of this view, or start again with `snapshot=true`.",
    ),
    Kind(
        "unauthorized",
        401,
        "Authentication required",
        "The data folder is in token mode, and the request has no valid access token: none at all, or one that is unknown, revoked or "
        "expired. `detail` says which. The body was not read.",
        "Send `Authorization: Bearer lj_…`. The command line and the Python client take the token from LIVEJOIN_TOKEN. An admin creates "
        "tokens with `livejoin token create` or POST /v1/tokens.",
    ),
    Kind(
        "forbidden",
        403,
        "Forbidden",
        "The access token does not allow the operation: its scope is too narrow, it is not for this relation or view, or it would revoke "
        "the last admin token. Or, outside token mode, the request names a foreign host or comes from a foreign web page: "
        "without access tokens, `Host` must be a loopback name (localhost, 127.0.0.1, [::1]), and `Origin`, which browsers send, "
        "must be the service's own: otherwise any web page in a browser on this machine could read and change everything. "
        "`detail` gives the reason. The body was not read.",
        "Use http://localhost or http://127.0.0.1 with the service's port, from the service's own pages or from a client other than a "
        "browser. Configure a proxy in front of the service to set Host to a loopback name. If `detail` names a scope, use a token "
        "that has it.",
    ),
    Kind(
        "not-found",
        404,
        "Not found",
        "The path names a relation, a view, a source, a stage, a problem type or a page that does not exist.",
        "List relations and views with GET /v1/relations and GET /v1/views; all paths are in /docs.",
    ),
    Kind(
        "method-not-allowed",
        405,
        "Method not allowed",
        "The path exists but does not support this method.",
        "Use one of the methods in the Allow header; see /docs.",
    ),
    Kind(
        "not-acceptable",
        406,
        "Not acceptable",
        "The resource is not available in any media type of the Accept header. `available` lists those that it has.",
        "Accept one of `available`, or */*.",
    ),
    Kind(
        "unsupported-media-type",
        415,
        "Unsupported media type",
        "The operation does not accept this Content-Type; `supported` lists those that it accepts. Or the body has a Content-Encoding, "
        "such as gzip: no operation accepts any.",
        "Send the body as one of `supported`, and set Content-Type accordingly. Send it without Content-Encoding: to send fewer bytes, "
        "use Parquet, which compresses its data.",
    ),
    Kind(
        "definition-differs",
        409,
        "The name is in use with a different definition",
        "A relation or view of this name exists with a different definition; a view cannot have the name of a relation, nor a relation "
        "that of a view. Definitions are compared after parsing. A relation can be "
        "extended (PATCH), but not in a way that changes or removes part of its definition.",
        "Use another name, or DELETE the existing one first; to add columns or intervals, PATCH the relation.",
    ),
    Kind(
        "relation-in-use",
        409,
        "Views use the relation or view",
        "The views in `views` read it, so it cannot be dropped; or they join on a column, so nulls cannot be allowed in it.",
        "DELETE those views first.",
    ),
    Kind(
        "source-reset",
        409,
        "The source belongs to another run",
        "The source is known with a different `run`. A new run usually numbers its epochs from the start (a Spark query with a new "
        "checkpoint does), so its batches would be taken for duplicates. Nothing was applied.",
        "If the new run is to take over the source, send `reset=true`; otherwise use another source name.",
    ),
    Kind(
        "too-many",
        409,
        "Limit reached",
        "The service already has the maximum number of relations (`--max-relations`), views (`--max-views`) or stages (64), or another "
        "backup is running.",
        "DELETE those that are no longer needed (commit stages, or wait for an hour), or start the service with a higher limit. Wait until "
        "the other backup has ended.",
    ),
    Kind(
        "not-followed",
        409,
        "The view does not keep changes",
        'The view is defined with `"changes": false`, so it cannot be followed.',
        "Register a view with `changes`, or read the view's rows.",
    ),
    Kind(
        "snapshot-expired",
        410,
        "The cursor has expired",
        "A version is kept for 60 seconds after the page that pinned it, but not across a restart. The rest of the rows at that "
        "version can no longer be read.",
        "Start again without a cursor, at the newest version.",
    ),
    Kind(
        "token-expired",
        410,
        "The token has expired",
        "A view keeps a limited number of changes (`changes` in its definition) and can lose them in a restart. The changes after "
        "this token are no longer kept. Changes are never skipped silently.",
        "Start again with `snapshot=true`: every row at one version, then the changes after it.",
    ),
    Kind(
        "delta-too-large",
        410,
        "A batch changed more rows of the view than it keeps",
        "The changes of one version exceed the view's `changes` limit. The batch was applied, and the changes up to that version "
        "were discarded.",
        "Start again with `snapshot=true`. If this happens often, give the view a larger `changes` limit.",
    ),
    Kind(
        "reader-too-slow",
        410,
        "The reader fell too far behind",
        "Changes arrived faster than the reader took them, and the next one is no longer kept.",
        "Resume from the token if its changes are still kept, otherwise start again with `snapshot=true`. Read faster, or give the "
        "view a larger `changes` limit.",
    ),
    Kind(
        "range-changed",
        412,
        "The rows have changed",
        "`If-Match` names a version of the file that is no longer kept, and the rows have changed since. A file that is read in parts is "
        "kept for `--spool-idle` after it was last read, but not across a restart.",
        "Read the file from its beginning: HEAD gives the new ETag.",
    ),
    Kind(
        "unsatisfiable-range",
        416,
        "The range is not in the file",
        "`Range` begins beyond the end of the file, or selects no bytes. `Content-Range` gives the length.",
        "Request a range within the file, whose length HEAD returns, or read the file without Range.",
    ),
    Kind(
        "body-too-large",
        413,
        "Request body too large",
        "The body exceeds a limit: its size (`--max-body`), its size when decoded (`--max-decoded`: a compressed file, or columns that "
        "repeat long texts, can decode to much more than they take), or its number of rows (`--max-batch-rows`; for a replacement, "
        "`--max-relation-rows`). `limit` is the limit that was exceeded. "
        "Nothing was applied.",
        "Send several smaller batches, or start the service with a higher limit.",
    ),
    Kind(
        "query-too-large",
        413,
        "The query needs too much memory",
        "The ad hoc query needs more memory than `--query-memory`, or a single row of its result is larger than the service can send.",
        "Select fewer columns, add conditions, or group before joining. If the query is run often, register it as a view, which is kept "
        "up to date.",
    ),
    Kind(
        "query-timeout",
        408,
        "The query takes too long",
        "The ad hoc query, including its response, took longer than `--query-time`. A response that had begun is aborted.",
        "Add conditions, or group before joining. To read all rows of a view or relation, use GET …/rows, which has no such limit. If the "
        "query is run often, register it as a view, which is kept up to date.",
    ),
    Kind(
        "request-timeout",
        408,
        "The request took too long to arrive",
        "The head of the request did not arrive within `--head-time`, or no byte of its body arrived for `--body-idle`. Nothing was "
        "applied, and the connection was closed.",
        "Send the request again, without pauses.",
    ),
    Kind(
        "headers-too-large",
        431,
        "Request head too large",
        "The address and the header fields together exceed `--max-head`, or there are more than 256 fields. The connection was closed.",
        "Send fewer and shorter header fields, and send long parameters in the body where the operation takes one.",
    ),
    Kind(
        "bad-rows",
        422,
        "Invalid rows",
        "`error_count` changes of the batch are invalid; `errors` lists the first 100 by `index` (from 0, headers not counted), "
        "`column` and `reason`. The whole batch was rejected.",
        "Fix those rows, or send `on_error=skip` to apply the valid ones and get the invalid ones back.",
    ),
    Kind(
        "bad-definition",
        422,
        "Invalid definition",
        "The definition of a relation, a view or a token, or the condition of a delete, is invalid. `detail` names the part.",
        "Fix the part named in `detail`; /docs describes definitions.",
    ),
    Kind(
        "unknown-relation",
        422,
        "Unknown relation",
        "The body names a relation that is not registered, or a view where a relation is required. Nothing was applied.",
        "Register the relation first with PUT /v1/relations/{name}, or correct the name.",
    ),
    Kind(
        "unknown-column",
        422,
        "Unknown column",
        "The definition names a column or an interval that its relation does not have, or one that cannot be used there.",
        "See the relation's columns and intervals with GET /v1/relations/{name}. SQL folds unquoted names to lower case.",
    ),
    Kind(
        "unsupported-query",
        422,
        "Unsupported query",
        "The query is valid, but part of it cannot be maintained as a view. `detail` names that part and what to write instead.",
        "Rewrite the query as `detail` suggests, or leave that part to the reader of the view.",
    ),
    Kind(
        "bad-query",
        422,
        "Invalid SQL",
        "The SQL text is not a valid query. `detail` gives the position, if it is known. An ad hoc query is itself the request, "
        "so its status is 400; it can also fail while it runs, if a value cannot be converted.",
        "Fix the text at that position. The dialect of views is PostgreSQL's, extended by `overlaps(x, y)` and `x OVERLAPS y`; that of "
        "ad hoc queries is DuckDB's.",
    ),
    Kind(
        "infeasible-view",
        422,
        "The view cannot have this guarantee or algorithm",
        "This view cannot have the requested guarantee or algorithm. `theorem` names the reason.",
        "Request a weaker guarantee, or the algorithm `auto`; POST /v1/explain lists the possible plans.",
    ),
    Kind(
        "internal",
        500,
        "Internal error",
        "An unexpected error occurred in the service. The response contains only a request id; the service's log has the error.",
        "Look up the request id in the service's log, and report the error.",
    ),
    Kind(
        "too-busy",
        429,
        "The service is busy",
        "The service has reached one of its limits: batches that wait to be applied (`--max-waiting`), bytes of bodies "
        "(`--max-body-memory`), connections (`--max-connections`), followers (`--max-followers`), ad hoc queries (`--max-queries`) or "
        "cursors (`--max-cursors`, `--max-client-cursors`). `detail` says which. Nothing was applied; where possible, the request was "
        "refused before its body was read.",
        "Send the request again after the time in Retry-After. A few large batches are faster than many small ones; follow a view over one "
        "connection; read all pages of a paged response, or omit `limit`.",
        1,
    ),
    Kind(
        "view-building",
        503,
        "The view is being built",
        "The view is registered and its structures are being loaded. `progress` says how far, from 0 to 1.",
        "Retry after the time in Retry-After; GET /v1/views/{name} shows the progress.",
        1,
    ),
    Kind(
        "too-many-groups",
        503,
        "The view has too many groups",
        "The view has more groups than its definition allows (`groups`, 10,000,000 unless it says otherwise), so it has failed and "
        "no longer follows changes. Its relations and other views are intact.",
        "DELETE the view, and register it with a larger `groups`, or with fewer or coarser columns in GROUP BY.",
    ),
    Kind(
        "view-failed",
        503,
        "The view has failed",
        "The view could not be built or maintained; GET /v1/views/{name} shows the problem. Its relations are intact.",
        "If `replacement` has this problem, the view has its former definition still: correct the new one, and replace the view again. "
        "Otherwise DELETE the view and register it again. If it fails again, see the service's log.",
    ),
    Kind(
        "recovering",
        503,
        "The service is starting or stopping",
        "The service is loading its data folder or compiling its kernels (`progress` says how far, from 0 to 1), or it is shutting down. "
        "A batch without `source` was not applied; one with `source` may have been, and is recognized when it is sent again.",
        "Retry after the time in Retry-After; /readyz answers 200 once the service is ready.",
        1,
    ),
    Kind(
        "no-room",
        503,
        "Out of memory",
        "A relation, a view or a batch does not fit into the memory or address space that the process can reserve, or exceeds the capacity "
        "of a relation or a view. Nothing was applied.",
        "DELETE what is not needed, split the relation or the view, or give the process more memory and address space.",
        10,
    ),
    Kind(
        "disk-full",
        503,
        "Disk full",
        "The batch could not be written to the data folder, so it was not applied.",
        "Free space on the disk of the data folder and resend the batch.",
        10,
    ),
)

CATALOGUE: dict[str, Kind] = {kind.type: kind for kind in _KINDS}


MOST_COMPLAINTS = 100  # about one definition, in `complaints`


class Problem(Exception):
    """One problem, of a type in the catalogue.

    `extensions` are further members of the JSON form (`errors`, `views`, `theorem`, `progress` …). `headers` are sent with the response;
    use them for what only the place of detection knows (`Allow`).
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
        """Return the `application/problem+json` form."""
        head = {"type": f"/problems/{self.type}", "title": self.title, "status": self.status, "detail": self.detail}
        return head | self.extensions


def bad_parameter(parameter: str, reason: str) -> Problem:
    """Return the problem of a query parameter, or of a field of a body, by its name; of a family of which several do not go together by
    what their names begin with, such as `where`."""
    return Problem("bad-parameter", f"{parameter}: {reason}", parameter=parameter)


def dropped(relation: str) -> Problem:
    """Return the problem of a relation that was dropped while it was needed, even if there is another one of its name now."""
    return Problem("not-found", f"the relation {relation} was dropped in the meantime")


def ending() -> Problem:
    """Return the problem for requests that arrive while the service stops."""
    return Problem("recovering", "the service is shutting down")


def unsupported(part: str, instead: str) -> Problem:
    """Return the problem for an unsupported part of a definition, with what to write instead."""
    return Problem("unsupported-query", f"{part} is not supported: {instead}")
