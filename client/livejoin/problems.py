"""What goes wrong: one exception class for each type of problem that the service answers with, and those of the connection.

`str()` of each is one line that says what is wrong and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from time import time
from typing import TYPE_CHECKING, Any

import orjson

from livejoin.receipts import Receipt


class LivejoinError(Exception):
    """Everything that this package raises, except for arguments of a wrong type or value.

    `receipt` tells what the same call had applied before: rows that are sent in several requests are applied request by request.
    """

    receipt: Receipt | None = None


class BadAddress(LivejoinError, ValueError):
    """The address of the service is not a URL."""


class BadFile(LivejoinError, ValueError):
    """A file of rows, or of certificates, cannot be read."""


class Unreachable(LivejoinError):
    """No connection, or one that broke before the answer was complete.

    `reason` is what the transport said. `sent` is False if the request certainly did not reach the service.
    """

    def __init__(self, message: str, reason: str, sent: bool) -> None:
        super().__init__(message)
        self.reason = reason
        self.sent = sent


class NotLivejoin(LivejoinError):
    """Another server answers at this address."""

    def __init__(self, url: str) -> None:
        super().__init__(f"the server at {url} is not a livejoin service: check the address")


class Problem(LivejoinError):
    """The service refused a request (RFC 9457). The subclass tells the type; a type that this version does not know is this class.

    `type` is the short name ("bad-rows"), `page` the address of the page that explains it, `document` the whole answer, `errors` the bad
    rows (`index`, `column`, `reason`; the first 100), `complaints` all of several about a definition (`detail`, perhaps `position`),
    `retry_after` the seconds that the service asks to wait.
    """

    def __init__(self, status: int, document: Mapping[str, Any], page: str = "", retry_after: float | None = None) -> None:
        self.status = status
        self.document = dict(document)
        self.type = str(document.get("type", "")).rpartition("/")[2]
        self.title = str(document.get("title", ""))
        self.detail = str(document.get("detail", ""))
        self.page = page
        self.retry_after = retry_after
        errors = document.get("errors")
        self.errors: list[dict[str, Any]] = [dict(error) for error in errors] if isinstance(errors, list) else []
        complaints = document.get("complaints")
        self.complaints: list[dict[str, Any]] = [dict(one) for one in complaints] if isinstance(complaints, list) else []
        super().__init__()

    def __str__(self) -> str:
        said = f"{self.type}: {_placed(self.document) or self.title}" if self.type else f"the service answered {self.status} {self.title}"
        if self.errors:
            first = self.errors[0]
            said += f" (first: row {first.get('index')}, column {first.get('column')}: {first.get('reason')})"
        return "; ".join([said, *map(_placed, self.complaints[1:])])

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.status, self.document, self.page, self.retry_after), self.__dict__


def _placed(complaint: Mapping[str, Any]) -> str:
    """Return what a complaint says, with its place in the text."""
    said, place = str(complaint.get("detail", "")), complaint.get("position")
    if not isinstance(place, dict) or "(line " in said:
        return said
    return f"{said} (line {place.get('line')}, column {place.get('column')})"


class MalformedBody(Problem):
    """400 malformed-body: the body is not what its media type says."""


class BadParameter(Problem):
    """400 bad-parameter: a query parameter is unknown or out of range."""


class BadCursor(Problem):
    """400 bad-cursor: the cursor belongs to another view or relation."""


class BadToken(Problem):
    """400 bad-token: the token belongs to another view or another data folder."""


class Unauthorized(Problem):
    """401 unauthorized: the service requires an access token (LIVEJOIN_TOKEN), or the one sent is not valid."""


class Forbidden(Problem):
    """403 forbidden: the token does not cover this, or the host is not allowed."""


class NotFound(Problem):
    """404 not-found: there is no relation, view or page of this name."""


class MethodNotAllowed(Problem):
    """405 method-not-allowed."""


class NotAcceptable(Problem):
    """406 not-acceptable: the service cannot answer in this media type."""


class RequestTimeout(Problem):
    """408 request-timeout: the request arrived too slowly."""


class QueryTimeout(Problem):
    """408 query-timeout: an ad hoc query took too long."""


class DefinitionDiffers(Problem):
    """409 definition-differs: the name is taken by another definition."""


class RelationInUse(Problem):
    """409 relation-in-use: views use this relation."""


class SourceReset(Problem):
    """409 source-reset: another run numbers the epochs of this source."""


class NotFollowed(Problem):
    """409 not-followed: the view keeps no changes."""


class TooMany(Problem):
    """409 too-many: the service has reached its limit of relations or views."""


class SnapshotExpired(Problem):
    """410 snapshot-expired: the version of this cursor is gone."""


class TokenExpired(Problem):
    """410 token-expired: the changes after this token are no longer kept. Follow again with `snapshot=True`."""


class DeltaTooLarge(TokenExpired):
    """410 delta-too-large: one batch changed more rows than the view keeps. Follow again with `snapshot=True`."""


class ReaderTooSlow(Problem):
    """410 reader-too-slow: the changes came faster than they were read."""


class RangeChanged(Problem):
    """412 range-changed: the rows have changed since the first range was read."""


class UnsatisfiableRange(Problem):
    """416 unsatisfiable-range: a file of rows is shorter."""


class BodyTooLarge(Problem):
    """413 body-too-large: the body exceeds the limit of the service."""


class QueryTooLarge(Problem):
    """413 query-too-large: an ad hoc query needs too much memory."""


class UnsupportedMediaType(Problem):
    """415 unsupported-media-type."""


class BadRows(Problem):
    """422 bad-rows: `errors` lists the bad rows; nothing of the request was applied."""


class BadDefinition(Problem):
    """422 bad-definition: the definition of a relation or view is wrong."""


class UnknownRelation(Problem):
    """422 unknown-relation: the body names a relation that is not registered."""


class UnknownColumn(Problem):
    """422 unknown-column: the definition names a column that is not there."""


class UnsupportedQuery(Problem):
    """422 unsupported-query: the view is not one that the service can keep."""


class BadQuery(Problem):
    """422 (ad hoc queries: 400) bad-query: the SQL cannot be read."""


class InfeasibleView(Problem):
    """422 infeasible-view: the view cannot have the guarantee or algorithm that it asks for."""


class TooBusy(Problem):
    """429 too-busy: too many batches are waiting."""


class HeadersTooLarge(Problem):
    """431 headers-too-large."""


class Internal(Problem):
    """500 internal: an error in the service; its log has the details under the request id."""


class ViewBuilding(Problem):
    """503 view-building: the view is not live yet."""


class Recovering(Problem):
    """503 recovering: the service is starting or shutting down."""


class DiskFull(Problem):
    """503 disk-full: the batch could not be written."""


class NoRoom(Problem):
    """503 no-room: the service is out of memory for this."""


class ViewFailed(Problem):
    """503 view-failed: the view could not be built or kept."""


class TooManyGroups(Problem):
    """503 too-many-groups: the view has more groups than it may."""


def _dashed(name: str) -> str:
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name).removeprefix("-")


def _below(kind: type[Problem]) -> list[type[Problem]]:
    return [below for child in kind.__subclasses__() for below in (child, *_below(child))]


CLASSES: dict[str, type[Problem]] = {_dashed(kind.__name__): kind for kind in _below(Problem)}

if not TYPE_CHECKING:  # type checkers read only lists that are written out
    __all__ = [name for name, one in vars().items() if isinstance(one, type) and issubclass(one, LivejoinError)]


def problem_from(document: Mapping[str, Any], url: str, status: int | None = None, retry_after: float | None = None) -> Problem:
    """The exception for a problem document. `url` is the service's address."""
    path = str(document.get("type", ""))
    kind = CLASSES.get(path.rpartition("/")[2], Problem)
    if status is None:
        emitted = document.get("status")
        status = emitted if isinstance(emitted, int) else 0
    return kind(status, document, f"{url}{path}" if path.startswith("/") else path, retry_after)


def problem_of_answer(status: int, reason: str, content: bytes, retry_after: str | None, url: str) -> Problem:
    """The exception for an answer that is not a success. A body that is not a problem document, as of a proxy, is passed over."""
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError:
        document = None
    if not isinstance(document, dict) or "type" not in document:
        document = {"title": reason}
    return problem_from(document, url, status, _seconds(retry_after))


def _seconds(text: str | None) -> float | None:
    """What a Retry-After asks for: seconds, or the time until a date."""
    if text is None:
        return None
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time())
    except ValueError:
        return 1.0
