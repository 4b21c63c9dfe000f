"""Views and relations read by Spark.

    batch    Spark plans the tasks once for all actions, so those of an action agree on a reading of the service, by its name. A task that
             is run again finds the same rows there
    stream   an offset is a version's token. A batch is what is between two of them, so it is the same whenever it is run

    offset   {"token", "version"}: everything up to there is read; "since": the token from which its batch began. Spark requests a new
             offset when a query is restarted before the end of its first batch, and that must not move the beginning: so the first
             batch is returned at once, perhaps empty, and what Spark has logged of it counts
    the rows before the changes ("snapshot") are the first batch: token "" before it, and after it the token from which changes continue

Filters of Spark are not pushed down (`pushFilters`): Spark 4.1 and 4.2 keep the partitions of the first plan for all plans over one
`load()`, so `df.where("id = 3").union(df.where("id = 4"))` returned the row 4 twice, and `df.count()` counted only the rows of an earlier
filter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, cast
from uuid import uuid4

import orjson
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from livejoin import Arrow, LivejoinError, Relation, SnapshotExpired, Unreachable, View
from livejoin.datasource.errors import DataSourceError
from livejoin.datasource.failures import ENDED, FIRST_BATCH_GONE, NEW_CHECKPOINT, OTHER_COLUMNS, PINNED, converting_errors
from livejoin.datasource.options import Options, Service
from livejoin.datasource.versions import UTC, ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

_PARTS, _MOST_PARTS, _HOLD, _LONGEST_HOLD = 8, 1000, 600, 3600
_AT_ONCE = 100_000  # rows of changes, about: what follows in Spark may take its time for them
Offset = dict[str, Any]


def schema_of(options: Options) -> StructType:
    """The schema of the rows of the view or relation that the options name, or of the changes of the view."""
    times, chosen = options.is_on("timeType"), options.chosen
    if options.is_on("changes"):
        with _opened(options.service, options.text("view"), NEW_CHECKPOINT) as view:
            token = _now(view)["token"]
            return _schema(view.changes_between(token, token, **chosen).to_table().schema, times)
    with _found(options.service, options.read, ENDED) as found:
        return _schema(found.to_arrow(limit=0, **chosen).schema, times)


class ChangesPartition(InputPartition):
    """The changes between two tokens; `version` is that of the second."""

    def __init__(self, since: str, until: str, version: int) -> None:
        self.since, self.until, self.version = since, until, version


class BatchReader(DataSourceReader):
    """A view or relation, for each action at one version: the newest, or the one of the options. A partition is a number."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._service, self._of, self._schema = options.service, options.read, schema
        self._times, self._chosen = options.is_on("timeType"), options.chosen
        self._version = options.whole("version", 0)
        self._parts = options.whole("parts", 1, _MOST_PARTS) or _PARTS
        self._hold = options.whole("hold", 1, _LONGEST_HOLD) or _HOLD
        self._id = uuid4().hex

    def partitions(self) -> list[InputPartition]:
        if self._chosen:  # what is found by a key or a window is one part
            with _found(self._service, self._of, self._gone) as found:
                reading = found.begin_reading(self._parts, version=self._version, **self._chosen)
                found.end_reading(reading["id"])
            self._parts = len(reading["cursors"])
        return [InputPartition(number) for number in range(self._parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with _found(self._service, self._of, self._gone) as found:
            reading = found.begin_reading(self._parts, hold=self._hold, version=self._version, name=self._name(), **self._chosen)
            for cursor in reading["cursors"][partition.value :: self._parts]:  # of a reading that another load may have begun
                yield from _as_spark(" ".join(self._of), _held(partial(found.arrow, cursor=cursor)), self._schema, self._times)

    @property
    def _gone(self) -> str:
        return ENDED if self._version is None else PINNED

    def _name(self) -> str:
        """The name of the reading of the task's action or, where Spark does not tell that, of its stage and load."""
        context = TaskContext.get()
        about = context.getLocalProperty if context else lambda _: None
        app, execution = about("spark.app.id"), about("spark.sql.execution.id")
        whose = f"{app}:{about('spark.app.startTime')}" if app else self._id
        name = f"{whose}:{execution or f'stage-{context.stageId() if context else 0}'}"
        return name if self._version is None else f"{name}:{self._version}"


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The changes of a view."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._service, self._view, self._schema, self._chosen = options.service, options.text("view"), schema, options.chosen
        self._most, self._snapshot, self._times = options.whole("maxRows", 1), options.is_on("snapshot"), options.is_on("timeType")
        self._target: Offset | None = None
        self._read: Offset | None = None  # where the query is, once it is known
        self._reading: dict[str, Any] | None = None  # of the first batch, while it is under way
        self._current = time.monotonic()  # when the query was last where the view is

    def initialOffset(self) -> Offset:
        if self._snapshot:
            return {"token": "", "version": 0, "initial": True}
        with _opened(self._service, self._view, NEW_CHECKPOINT) as view:
            return _now(view) | {"initial": True}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._most is None else ReadMaxRows(self._most)

    def prepareForTriggerAvailableNow(self) -> None:
        with _opened(self._service, self._view, NEW_CHECKPOINT) as view:
            self._target = _now(view)

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        start = start or self._read or self.initialOffset()
        with _opened(self._service, self._view, NEW_CHECKPOINT) as view:
            if not start["token"]:
                self._reading = reading = self._begin(view, None)
                return {"token": reading["token"], "version": reading["version"], "since": ""}
            end = view.changes_end(start["token"], limit.max_rows if isinstance(limit, ReadMaxRows) else None)
        target = self._target
        if target is not None and start["version"] >= target["version"]:  # of the same timeline: the service has validated the token
            end = {**start, "rows": 0}
        if not end["rows"] and "since" in start:
            return start
        if target is not None and end["version"] > target["version"]:
            end = target
        return {"token": end["token"], "version": end["version"], "since": start["token"]}

    def reportLatestOffset(self) -> Offset | None:
        """For the progress of the query."""
        if self._read is None or not self._read["token"]:
            return None
        with suppress(LivejoinError), self._service.connect() as lj:
            newest = lj.view(self._view).changes_end(self._read["token"])
            now, behind = time.monotonic(), newest["version"] - self._read["version"] if newest["rows"] else 0
            self._current = self._current if behind else now
            seconds = round(now - self._current)
            return {"token": newest["token"], "version": newest["version"], "behind_versions": behind, "behind_seconds": seconds}
        return None  # the next batch will fail, and say why

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        self._read = end
        if start == end:
            return []
        if since := end.get("since", start["token"]) if "initial" in start else start["token"]:
            return [ChangesPartition(since, end["token"], end["version"])]
        reading = self._reading
        if reading is None or reading["version"] != end["version"]:  # the query was restarted within its first batch
            with _opened(self._service, self._view, FIRST_BATCH_GONE) as view:
                self._reading = reading = self._begin(view, end["version"])
        return [InputPartition(cursor) for cursor in reading["cursors"]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Changes, or, of the first batch, the rows after a cursor."""
        is_changes = isinstance(partition, ChangesPartition)
        with _opened(self._service, self._view, NEW_CHECKPOINT if is_changes else FIRST_BATCH_GONE, _query()) as view:
            found = _changed(view, partition, self._chosen) if is_changes else _held(partial(view.part_as_changes, partition.value))
            yield from _as_spark(f"view {self._view}", found, self._schema, self._times)

    def commit(self, end: Offset) -> None:
        self.stop()

    def stop(self) -> None:
        """Release the version of the first batch."""
        reading, self._reading = self._reading, None
        if reading is not None:
            with self._service.connect() as lj, suppress(LivejoinError):  # it ends by itself
                lj.view(self._view).end_reading(reading["id"])

    def _begin(self, view: View, version: int | None) -> dict[str, Any]:
        return view.begin_reading(_PARTS, hold=_LONGEST_HOLD, version=version, **self._chosen)


@contextmanager
def _found(service: Service, of: tuple[str, str], deleted: str, reader: str = "") -> Iterator[View | Relation]:
    """The view or relation, with errors of the client converted by `converting_errors`. `reader`: of `livejoin.connect`."""
    kind, name = of
    with service.connect(reader) as lj, converting_errors(f"the {kind} {name}", deleted):
        yield lj.view(name) if kind == "view" else lj.relation(name)


@contextmanager
def _opened(service: Service, name: str, deleted: str, reader: str = "") -> Iterator[View]:
    """The same for a view."""
    with _found(service, ("view", name), deleted, reader) as view:
        yield cast(View, view)


def _query() -> str:
    """The name of the task's query, or its id."""
    if (context := TaskContext.get()) is None:
        return ""
    name = (context.getLocalProperty("spark.job.description") or "").partition("\n")[0].strip()
    return name or context.getLocalProperty("sql.streaming.queryId") or ""


def _now(view: View) -> Offset:
    """Where future changes begin: after those that existed when this was called."""
    with view.changes(wait=0, limit=1) as changes:
        progress = orjson.loads(b"".join(changes.lines()).splitlines()[-1])
    return {"token": progress["token"], "version": progress["version"]}


def _held(opened: Callable[[], Arrow]) -> Iterator[pa.RecordBatch]:
    """A part's rows. The service closes the connection of a client that reads nothing for long (--pin-idle), but holds the version:
    continue there."""
    taken = before = 0
    while True:
        left = taken  # rows that come again, in the same order
        answer = opened()
        try:
            for batch in answer:
                if left < batch.num_rows:
                    taken += batch.num_rows - left
                    yield batch.slice(left)
                left = max(0, left - batch.num_rows)
            if not taken:
                yield pa.RecordBatch.from_pylist([], answer.decoder.schema)  # its columns are compared
            return
        except (Unreachable, SnapshotExpired):
            if taken == before:
                raise
            before = taken


def _changed(view: View, stretch: ChangesPartition, chosen: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """Whole versions. The response to each request is read at once, so that no connection waits for Spark."""
    since = stretch.since
    while True:
        end = view.changes_end(since, _AT_ONCE)
        is_last = end["version"] >= stretch.version or not end["rows"]
        until = stretch.until if is_last else end["token"]
        yield from view.changes_between(since, until, **chosen).to_table().to_batches()
        if is_last:
            return
        since = until


def _as_spark(what: str, batches: Iterable[pa.RecordBatch], schema: StructType, times: bool) -> Iterator[pa.RecordBatch]:
    """In exactly the columns and types that Spark has requested. Raises DataSourceError."""
    wanted = to_arrow_schema(schema, **UTC)
    expected = [(field.name, field.dataType) for field in schema]
    for batch in batches:
        if (found := [(field.name, field.dataType) for field in _schema(batch.schema, times)]) != expected:
            now = ", ".join(f"{column} {type_.simpleString()}" for column, type_ in found)
            raise DataSourceError(f"the {what}: {OTHER_COLUMNS} (they are {now})")
        yield batch.cast(wanted)


def _schema(rows: pa.Schema, times: bool) -> StructType:
    """In Spark's types. Times of day are text unless `times`: TimeType is an error in Spark if spark.sql.timeType.enabled is off."""
    shown = pa.schema([one.with_type(pa.utf8()) if pa.types.is_time(one.type) and not times else one for one in rows])
    return from_arrow_schema(shown, prefer_timestamp_ntz=True)
