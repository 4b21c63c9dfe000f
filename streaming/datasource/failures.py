"""What the service refuses, as one sentence with what to do in Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from livejoin import (
    BadToken,
    BodyTooLarge,
    Forbidden,
    LivejoinError,
    NotFollowed,
    Problem,
    ReaderTooSlow,
    SnapshotExpired,
    SourceReset,
    TokenExpired,
    Unauthorized,
)
from streaming.errors import StreamError

LOAD_AGAIN = "load the DataFrame again; the option 'hold' has the seconds for which all tasks together find its version, 3600 at most"
NEW_CHECKPOINT = (
    "this query cannot go on: start it with a new checkpoint, and with the option 'snapshot' to begin with every row; a view keeps more "
    'changes if it is defined with larger bounds, "changes": {"retain_rows": n, "retain_bytes": n}'
)
OTHER_COLUMNS = "the columns of the view are others than when it was loaded: load the DataFrame again, or start the query again"
FIRST_BATCH_GONE = (
    "this query cannot go on: start it with a new checkpoint; the rows of its first batch (option 'snapshot') are to be read within an "
    "hour, for which the service holds their version, and before it is restarted: give the query more cores, or begin without 'snapshot'"
)
_OTHER_SOURCE = "give the query another 'source', or the option 'reset' if it takes this one over"
NEW_RUN = "a query with a new checkpoint, or with an older copy of one, needs another value of the option 'run', and the option 'reset'"
BEHIND = (
    "it was restored from an older backup, or its source was forgotten. A query with a new checkpoint writes everything again; with the "
    "option 'reset' this one goes on without what is missing"
)
LESS_AT_ONCE = (
    "let the source of the query read less at once (maxOffsetsPerTrigger of Kafka, maxFilesPerTrigger of files, maxRows of livejoin), with "
    "a new checkpoint if the batch is planned already"
)
TOKEN = "give a valid one by the option 'token', or LIVEJOIN_TOKEN; a stream that is started again goes on where it was"
_REMEDIES: dict[type[LivejoinError], str] = {
    Unauthorized: TOKEN,
    Forbidden: TOKEN,
    SourceReset: _OTHER_SOURCE,
    BodyTooLarge: LESS_AT_ONCE,
    NotFollowed: 'its changes can be read if it is defined without "changes": false',
}


@contextmanager
def told(what: str, gone: str) -> Iterator[None]:
    """StreamError in place of errors of the client. `what` they concern; `gone`: what to do where a version or a token is not kept."""
    try:
        yield
    except LivejoinError as error:
        said = error.detail or error.title if isinstance(error, Problem) else str(error)
        remedy = gone if isinstance(error, (SnapshotExpired, TokenExpired, BadToken, ReaderTooSlow)) else _REMEDIES.get(type(error))
        bad = some_bad(getattr(error, "errors", []))
        raise StreamError(f"{what}: {'; '.join([said, *bad, *([remedy] if remedy else [])])}") from error


def some_bad(errors: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is wrong with the first of the bad rows of an answer."""
    return [f"{one.get('column') or 'row'} of row {one.get('index')}: {one.get('reason')}" for one in errors[:3]]
