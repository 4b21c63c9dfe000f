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
from livejoin.problems import *  # noqa: F403  # every exception
from livejoin.receipts import Receipt as Receipt
from livejoin.samples import Sample as Sample
from livejoin.versions import Change as Change, Version as Version
