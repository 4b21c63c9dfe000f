"""Relations written by Spark.

    stream   a task returns its rows as Arrow in its commit message; `commit` sends one batch, whose source, epoch (the batch's id) and run
             (the query's id) the service remembers: a batch that is run again, or may have been applied already, is applied once. Empty
             batches are sent, too, so that a service that lacks one is noticed
    batch    each task stages its rows in parts, numbered by its attempt; `commit` names the parts of the attempts that count, so a task
             may be run again, or twice. They make one version, if they are few enough. Rows with a column `_op` are sent by the tasks as
             they read them: upserts and deletes, so a task may be run again
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain
from typing import Any, Literal, cast
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from livejoin import Client, Receipt, Relation
from livejoin.arrow import ARROW, stream_of
from livejoin.datasource.errors import DataSourceError
from livejoin.datasource.failures import BEHIND, LESS_AT_ONCE, NEW_RUN, converting_errors, some_bad
from livejoin.datasource.options import Options
from livejoin.datasource.versions import UTC, StreamArrowWriter
from livejoin.encoding import OP_COLUMN, bodies

BATCH = ("relation", "on_error")
STREAM = ("relation", "source", "on_error", "reset", "run")
_NO_CHANGES = b'{"changes": []}', "application/json"
LARGEST = 128 << 20  # bytes of a batch of a stream: they are in the driver's memory several times
_AT_ONCE = 1_000_000  # rows of a version of upserts
_NOTHING = (0, 0)  # the part without rows by which the service has judged the columns
_PARTS_BITS = 20  # of a part's number: a task stages fewer
OnError = Literal["reject", "skip"]

log = logging.getLogger("livejoin.spark")


class WriteResult(WriterCommitMessage):
    """The result of a task of a stream: its rows as an Arrow stream, their number, and the run."""

    def __init__(self, content: bytes, run: str, rows: int) -> None:
        self.content, self.run, self.rows = content, run, rows


class TaskResult(WriterCommitMessage):
    """The result of a task of a batch: the parts that it has staged, each with its number of rows; or the bad rows that the service has
    skipped, their number and some of them."""

    def __init__(self) -> None:
        self.parts: list[tuple[int, int]] = []
        self.skipped_count, self.skipped = 0, list[dict[str, Any]]()


class StreamWriter(StreamArrowWriter):
    """Changes of a relation, exactly once."""

    def __init__(self, options: Options, overwrite: bool) -> None:
        if overwrite:
            way = 'use outputMode("append"); each row is an upsert, or what its column _op says'
            raise DataSourceError(f'outputMode("complete") is not supported: {way}')
        self._service, self._relation, self._source = options.service, options.text("relation"), options.text("source")
        self._on_error = cast(OnError, options.one_of("on_error", "reject", "skip"))
        self._reset, self._run = options.is_on("reset"), options.optional("run")
        self._what = f"the relation {self._relation}, source {self._source}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteResult:
        batches, size = [], 0
        for batch in iterator:
            size += batch.nbytes
            self._require_small(size)
            if batch.num_rows:
                batches.append(batch)
        context = TaskContext.get()
        run = self._run or (context and context.getLocalProperty("sql.streaming.queryId"))
        if not run:
            raise DataSourceError("Spark does not tell the id of the query: name it in the option 'run', differently for each checkpoint")
        content = stream_of(batches, {b"livejoin.relation": self._relation.encode()}) if batches else b""
        return WriteResult(content, run, sum(batch.num_rows for batch in batches))

    def commit(self, messages: list[WriteResult | None], batchId: int) -> None:
        written = [message for message in messages if message is not None]
        if not written:
            return
        content, run, rows = b"".join(message.content for message in written), written[0].run, sum(message.rows for message in written)
        self._require_small(len(content))
        what = f"{self._what}, batch {batchId}"
        with self._service.connect() as lj, converting_errors(what, ""):
            lj.readiness()  # a service that has answered is waited for, and the batch sent again, if the connection breaks
            is_known = self._require_applied(lj, what, run, batchId)
            if content or is_known:
                body = (content, ARROW) if content else _NO_CHANGES
                receipt = lj.post_changes(*body, self._source, batchId, run=run, reset=self._reset, on_error=self._on_error)
            else:
                receipt = self._begin(lj, run, batchId)
        if receipt.duplicate and receipt.first is None:  # not this batch once more, which would be the last of the run
            raise DataSourceError(f"{what}: the run {run!r} has written later batches, so this batch was not written: {NEW_RUN}")
        if receipt.first is not None and (before := _rows_of(receipt.first)) != rows:
            said = f"the run {run!r} has written this batch with {before} rows; now it has {rows}, which were not written"
            raise DataSourceError(f"{what}: {said}: {NEW_RUN}")
        _report(what, receipt.skipped_count, receipt.skipped)

    def abort(self, messages: list[WriteResult | None], batchId: int) -> None:
        """Nothing was sent."""

    def _begin(self, lj: Client, run: str, batch: int) -> Receipt:
        """Make the source known by an empty batch: one that deletes no row, because without a relation nothing would be recorded."""
        relation = lj.relation(self._relation)
        nothing = {"column": relation.get()["key"][0], "op": "is_null"}
        return relation.delete_where(nothing, source=self._source, epoch=batch, run=run)

    def _require_applied(self, lj: Client, what: str, run: str, batch: int) -> bool:
        """Return whether the service knows the source. Raises DataSourceError if it lacks the previous batch, for example after it was
        restored from an older backup."""
        known = next((one for one in lj.sources() if one["name"] == self._source), None)
        if self._reset or not batch:
            return known is not None
        if known is None or (known["run"] == run and known["epoch"] < batch - 1):
            has = "no batch of this source" if known is None else f"batch {known['epoch']} as the last of this run"
            raise DataSourceError(f"{what}: the service has {has}, so it lacks batches before this one: {BEHIND}")
        return True

    def _require_small(self, size: int) -> None:
        if size > LARGEST:
            raise DataSourceError(f"{self._what}: the batch is larger than the maximum of {LARGEST >> 20} MiB: {LESS_AT_ONCE}")


class BatchWriter(DataSourceArrowWriter):
    """Upserts, or all rows of the relation; or the operations of a column `_op`."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        self._service, self._relation = options.service, options.text("relation")
        self._on_error = cast(OnError, options.one_of("on_error", "reject", "skip"))
        self._what, self._overwrite = f"the relation {self._relation}", overwrite
        self._stage = None if OP_COLUMN in schema.names else uuid4().hex
        if overwrite and self._stage is None:
            raise DataSourceError(f'mode("overwrite") replaces all rows: use mode("append"), or drop the column {OP_COLUMN}')
        with self._service.connect() as lj, converting_errors(self._what, ""):
            self._require_fit(lj.relation(self._relation), schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        result, context = TaskResult(), TaskContext.get()
        number = (context.taskAttemptId() + 1 if context else 1) << _PARTS_BITS
        with self._service.connect() as lj, converting_errors(self._what, ""):
            relation = lj.relation(self._relation)
            for batch in iterator:
                if self._stage is None and batch.num_rows:
                    receipt = relation.load(pa.table(batch), on_error=self._on_error)
                    result.skipped_count += receipt.skipped_count
                    result.skipped = result.skipped or receipt.skipped
                elif self._stage is not None:
                    for body in bodies(batch, "upsert"):
                        part = relation.stage(self._stage, number, body.content, body.media_type, on_error=self._on_error)
                        result.parts.append((number, part["part_rows"]))
                        number += 1
        return result

    def commit(self, messages: list[TaskResult | None]) -> None:
        results: list[TaskResult | Receipt] = [message for message in messages if message is not None]
        parts = [_NOTHING, *chain.from_iterable(one.parts for one in results if isinstance(one, TaskResult))]
        most = sum(rows for _, rows in parts) if self._overwrite else _AT_ONCE
        if self._stage is not None:
            with self._service.connect() as lj, converting_errors(self._what, ""):
                relation = lj.relation(self._relation)
                results += [relation.commit(self._stage, some, keep=not self._overwrite) for some in _groups(parts, most)]
        _report(self._what, sum(one.skipped_count for one in results), [bad for one in results for bad in one.skipped])

    def abort(self, messages: list[TaskResult | None]) -> None:
        """The service forgets what was staged; what was sent is kept, and written again when the job is run again."""

    def _require_fit(self, relation: Relation, schema: StructType) -> None:
        """Raises DataSourceError (columns), Problem (a type that the service does not convert to that of the relation's column)."""
        definition, given = relation.get(), [name for name in schema.names if name != OP_COLUMN]
        known = [column["name"] for column in definition["columns"]]
        if unknown := [name for name in given if name not in known]:
            raise DataSourceError(f"{self._what} has no column {unknown[0]}: its columns are {', '.join(known)}")
        required = [column["name"] for column in definition["columns"] if not column["nullable"]]
        if missing := [name for name in (definition["key"] if self._stage is None else required) if name not in given]:
            raise DataSourceError(f"the rows lack the column {missing[0]} of {self._what}, which is not nullable: add it")
        nothing = stream_of([pa.RecordBatch.from_pylist([], to_arrow_schema(schema, **UTC))])
        if self._stage is None:
            relation.post(nothing, ARROW)
        else:
            relation.stage(self._stage, _NOTHING[0], nothing, ARROW)


def _groups(parts: list[tuple[int, int]], most: int) -> Iterator[list[int]]:
    """The parts that are committed together: of up to so many rows."""
    group, rows = list[int](), 0
    for number, count in parts:
        if group and rows + count > most:
            yield group
            group, rows = [], 0
        group.append(number)
        rows += count
    yield group


def _rows_of(receipt: dict[str, Any]) -> int:
    return int(receipt["applied"] + receipt["ignored"] + receipt["skipped_count"])


def _report(what: str, count: int, some: list[dict[str, Any]]) -> None:
    if count:
        log.warning("%s: %d bad rows were skipped (on_error), such as %s", what, count, "; ".join(some_bad(some)))
