"""Refusals of the service, as one sentence that says what to do in Spark."""

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
from livejoin.datasource.errors import DataSourceError

ENDED = (
    "the reading has ended: run the action again; the option 'hold' sets for how many seconds (at most 3600) after the last request the "
    "version of an action is kept for its tasks"
)
PINNED = "the option 'version' needs a version that a cursor or a reading of the service holds until the end of the action"
NEW_CHECKPOINT = (
    "this query cannot continue: start it with a new checkpoint, and with the option 'snapshot' to begin with all rows; a view keeps more "
    'changes if it is defined with larger limits, "changes": {"retain_rows": n, "retain_bytes": n}'
)
OTHER_COLUMNS = "its columns are not those it was loaded with: load it again without schema(…), create the table anew, or restart the query"
FIRST_BATCH_GONE = (
    "this query cannot continue: start it with a new checkpoint; the service keeps the version of the first batch (option 'snapshot') for "
    "an hour, and not across a restart: give the query more cores to read it in time, or start without 'snapshot'"
)
_OTHER_SOURCE = "give the query a different 'source', or set the option 'reset' if it is to take this one over"
NEW_RUN = "a query with a new checkpoint, or with an older copy of one, needs another value of the option 'run', and the option 'reset'"
BEHIND = (
    "it was restored from an older backup, or its source was forgotten, or the token may not write to all relations that the source has "
    "written. A query with a new checkpoint writes everything again; with the option 'reset' this one continues without what is missing"
)
LESS_AT_ONCE = (
    "limit how much the source of the query reads at once (maxOffsetsPerTrigger of Kafka, maxFilesPerTrigger of files, maxRows of "
    "livejoin), and use a new checkpoint if the batch has already been planned"
)
_TOKEN = "give a valid token in the option 'token', or in LIVEJOIN_TOKEN; a stream that is restarted continues where it stopped"
_REMEDIES: dict[type[LivejoinError], str] = {
    Unauthorized: _TOKEN,
    Forbidden: _TOKEN,
    SourceReset: _OTHER_SOURCE,
    BodyTooLarge: LESS_AT_ONCE,
    NotFollowed: 'to read its changes, define it without "changes": false',
}


@contextmanager
def converting_errors(what: str, deleted: str) -> Iterator[None]:
    """Convert errors of the client to DataSourceError. `what` they concern; `deleted`: what to do if a version or token is no longer
    kept."""
    try:
        yield
    except LivejoinError as error:
        said = error.detail or error.title if isinstance(error, Problem) else str(error)
        remedy = deleted if isinstance(error, (SnapshotExpired, TokenExpired, BadToken, ReaderTooSlow)) else _REMEDIES.get(type(error))
        bad = some_bad(getattr(error, "errors", []))
        raise DataSourceError(f"{what}: {'; '.join([said, *bad, *([remedy] if remedy else [])])}") from error


def some_bad(errors: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is wrong with the first of the bad rows of an answer."""
    return [f"{one.get('column') or 'row'} of row {one.get('index')}: {one.get('reason')}" for one in errors[:3]]
