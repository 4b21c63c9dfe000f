"""The public names of the client, which `livejoin` passes on."""

from __future__ import annotations

import os
from os import PathLike

from livejoin._async.answers import AsyncArrow, AsyncRows
from livejoin._async.batch import AsyncBatch
from livejoin._async.changes import AsyncChanges
from livejoin._async.client import AsyncClient
from livejoin._async.follow import AsyncFollow
from livejoin._async.query import AsyncQuery
from livejoin._async.relation import AsyncRelation
from livejoin._async.view import AsyncView
from livejoin._sync.answers import Arrow, Rows
from livejoin._sync.batch import Batch
from livejoin._sync.changes import Changes
from livejoin._sync.client import Client
from livejoin._sync.follow import Follow
from livejoin._sync.query import Query
from livejoin._sync.relation import Relation
from livejoin._sync.view import View
from livejoin.explanation import Explanation
from livejoin.problems import (
    BadAddress,
    BadCursor,
    BadDefinition,
    BadFile,
    BadParameter,
    BadQuery,
    BadRows,
    BadToken,
    BodyTooLarge,
    DefinitionDiffers,
    DeltaTooLarge,
    DiskFull,
    Forbidden,
    HeadersTooLarge,
    InfeasibleView,
    Internal,
    LivejoinError,
    MalformedBody,
    MethodNotAllowed,
    NoRoom,
    NotAcceptable,
    NotFollowed,
    NotFound,
    NotLivejoin,
    Problem,
    QueryTimeout,
    QueryTooLarge,
    RangeChanged,
    ReaderTooSlow,
    Recovering,
    RelationInUse,
    RequestTimeout,
    SnapshotExpired,
    SourceReset,
    TokenExpired,
    TooBusy,
    TooMany,
    TooManyGroups,
    Unauthorized,
    UnknownColumn,
    UnknownRelation,
    Unreachable,
    UnsatisfiableRange,
    UnsupportedMediaType,
    UnsupportedQuery,
    ViewBuilding,
    ViewFailed,
)
from livejoin.receipts import Receipt
from livejoin.samples import Sample
from livejoin.versions import Change, Version

__all__ = [
    "DEFAULT_URL",
    "Arrow",
    "AsyncArrow",
    "AsyncBatch",
    "AsyncChanges",
    "AsyncClient",
    "AsyncFollow",
    "AsyncQuery",
    "AsyncRelation",
    "AsyncRows",
    "AsyncView",
    "BadAddress",
    "BadCursor",
    "BadDefinition",
    "BadFile",
    "BadParameter",
    "BadQuery",
    "BadRows",
    "BadToken",
    "Batch",
    "BodyTooLarge",
    "Change",
    "Changes",
    "Client",
    "DefinitionDiffers",
    "DeltaTooLarge",
    "DiskFull",
    "Explanation",
    "Follow",
    "Forbidden",
    "HeadersTooLarge",
    "InfeasibleView",
    "Internal",
    "LivejoinError",
    "MalformedBody",
    "MethodNotAllowed",
    "NoRoom",
    "NotAcceptable",
    "NotFollowed",
    "NotFound",
    "NotLivejoin",
    "Problem",
    "Query",
    "QueryTimeout",
    "QueryTooLarge",
    "RangeChanged",
    "ReaderTooSlow",
    "Receipt",
    "Recovering",
    "Relation",
    "RelationInUse",
    "RequestTimeout",
    "Rows",
    "Sample",
    "SnapshotExpired",
    "SourceReset",
    "TokenExpired",
    "TooBusy",
    "TooMany",
    "TooManyGroups",
    "Unauthorized",
    "UnknownColumn",
    "UnknownRelation",
    "Unreachable",
    "UnsatisfiableRange",
    "UnsupportedMediaType",
    "UnsupportedQuery",
    "Version",
    "View",
    "ViewBuilding",
    "ViewFailed",
    "connect",
    "connect_async",
]

DEFAULT_URL = "http://127.0.0.1:8080"
PATIENCE = 60.0  # seconds


def connect(
    url: str | None = None,
    *,
    token: str | None = None,
    ca: str | PathLike[str] | None = None,
    patience: float = PATIENCE,
    timeout: float = 300.0,
) -> Client:
    """A client of the service at `url`, else LIVEJOIN_URL, else http://127.0.0.1:8080. Asks nothing of it yet.

    token: else LIVEJOIN_TOKEN. ca: a PEM file with the certificates that may sign the service's; else LIVEJOIN_CA, else those that browsers
    trust. patience: for so many seconds a request is repeated while the service is away, busy or starting, where
    repeating is safe: reads, batches with source and epoch, and what the service says that it did not do. A service that has never
    answered this client is not waited for if it refuses the connection. timeout: seconds without an answer. Raises BadAddress, BadFile (of
    `ca`).
    A client may be used by several threads.
    """
    return Client(*_settings(url, token, ca), patience, timeout)


def connect_async(
    url: str | None = None,
    *,
    token: str | None = None,
    ca: str | PathLike[str] | None = None,
    patience: float = PATIENCE,
    timeout: float = 300.0,
) -> AsyncClient:
    """The same for asyncio."""
    return AsyncClient(*_settings(url, token, ca), patience, timeout)


def _settings(url: str | None, token: str | None, ca: str | PathLike[str] | None) -> tuple[str, str | None, str | PathLike[str] | None]:
    given = os.environ.get
    return url or given("LIVEJOIN_URL") or DEFAULT_URL, token or given("LIVEJOIN_TOKEN"), ca or given("LIVEJOIN_CA") or None
