"""The public names of the client, which `livejoin` passes on: every name here."""

from livejoin._async.answers import AsyncArrow as AsyncArrow, AsyncRows as AsyncRows
from livejoin._async.batch import AsyncBatch as AsyncBatch
from livejoin._async.changes import AsyncChanges as AsyncChanges
from livejoin._async.client import AsyncClient as AsyncClient
from livejoin._async.follow import AsyncFollow as AsyncFollow
from livejoin._async.query import AsyncQuery as AsyncQuery
from livejoin._async.relation import AsyncRelation as AsyncRelation
from livejoin._async.view import AsyncView as AsyncView
from livejoin._sync.answers import Arrow as Arrow, Rows as Rows
from livejoin._sync.batch import Batch as Batch
from livejoin._sync.changes import Changes as Changes
from livejoin._sync.client import Client as Client
from livejoin._sync.follow import Follow as Follow
from livejoin._sync.query import Query as Query
from livejoin._sync.relation import Relation as Relation
from livejoin._sync.view import View as View
from livejoin.connecting import DEFAULT_URL as DEFAULT_URL, connect as connect, connect_async as connect_async
from livejoin.explanation import Explanation as Explanation
from livejoin.problems import (
    BadAddress as BadAddress,
    BadCursor as BadCursor,
    BadDefinition as BadDefinition,
    BadFile as BadFile,
    BadParameter as BadParameter,
    BadQuery as BadQuery,
    BadRows as BadRows,
    BadToken as BadToken,
    BodyTooLarge as BodyTooLarge,
    DefinitionDiffers as DefinitionDiffers,
    DeltaTooLarge as DeltaTooLarge,
    DiskFull as DiskFull,
    Forbidden as Forbidden,
    HeadersTooLarge as HeadersTooLarge,
    InfeasibleView as InfeasibleView,
    Internal as Internal,
    LivejoinError as LivejoinError,
    MalformedBody as MalformedBody,
    MethodNotAllowed as MethodNotAllowed,
    NoRoom as NoRoom,
    NotAcceptable as NotAcceptable,
    NotFollowed as NotFollowed,
    NotFound as NotFound,
    NotLivejoin as NotLivejoin,
    Problem as Problem,
    QueryTimeout as QueryTimeout,
    QueryTooLarge as QueryTooLarge,
    RangeChanged as RangeChanged,
    ReaderTooSlow as ReaderTooSlow,
    Recovering as Recovering,
    RelationInUse as RelationInUse,
    RequestTimeout as RequestTimeout,
    SnapshotExpired as SnapshotExpired,
    SourceReset as SourceReset,
    TokenExpired as TokenExpired,
    TooBusy as TooBusy,
    TooMany as TooMany,
    TooManyGroups as TooManyGroups,
    Unauthorized as Unauthorized,
    UnknownColumn as UnknownColumn,
    UnknownRelation as UnknownRelation,
    Unreachable as Unreachable,
    UnsatisfiableRange as UnsatisfiableRange,
    UnsupportedMediaType as UnsupportedMediaType,
    UnsupportedQuery as UnsupportedQuery,
    ViewBuilding as ViewBuilding,
    ViewFailed as ViewFailed,
)
from livejoin.receipts import Receipt as Receipt
from livejoin.samples import Sample as Sample
from livejoin.versions import Change as Change, Version as Version
