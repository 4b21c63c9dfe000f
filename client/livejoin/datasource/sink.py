"""Relations written by Spark.

    stream   a task returns its rows as Arrow in its commit message; `commit` sends one batch, whose source, epoch (the batch's id) and run
             (the query's id) the service remembers: a batch that is run again, or may have been applied already, is applied once. Empty
             batches are sent, too, so that a service that lacks one is noticed
    batch    each task sends its rows as it reads them, in requests of some megabytes: upserts and deletes, so a task may be run again
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Literal, cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from livejoin import Client, Receipt
from livejoin.arrow import ARROW, stream_of
from livejoin.datasource.errors import DataSourceError
from livejoin.datasource.failures import BEHIND, LESS_AT_ONCE, NEW_RUN, converting_errors, some_bad
from livejoin.datasource.options import Options

BATCH = ("relation", "on_error")
STREAM = ("relation", "source", "on_error", "reset", "run")
_NO_CHANGES = b'{"changes": []}', "application/json"
LARGEST = 128 << 20  # bytes of a batch of a stream: they are in the driver's memory several times
_QUERY = "sql.streaming.queryId"  # the property by which Spark tells tasks whose they are
OnError = Literal["reject", "skip"]

log = logging.getLogger("livejoin.spark")


class WriteResult(WriterCommitMessage):
    """The result of a task of a stream: its rows as an Arrow stream, their number, and the run."""

    def __init__(self, content: bytes, run: str, rows: int) -> None:
        self.content, self.run, self.rows = content, run, rows


class SkippedRows(WriterCommitMessage):
    """Bad rows that the service skipped in a task of a batch: their number, and some of them."""

    def __init__(self, count: int, some: list[dict[str, Any]]) -> None:
        self.count, self.some = count, some


class StreamWriter(DataSourceStreamArrowWriter):
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
        run = self._run or (context and context.getLocalProperty(_QUERY))
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
    """Upserts, and the operations of a column `_op`, one chunk per request."""

    def __init__(self, options: Options, overwrite: bool) -> None:
        if overwrite:
            raise DataSourceError(
                'mode("overwrite") is not supported: mode("append") writes upserts; `livejoin load --replace`, and `Relation.replace` of '
                "the client, replace all rows"
            )
        self._service, self._relation = options.service, options.text("relation")
        self._on_error = cast(OnError, options.one_of("on_error", "reject", "skip"))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SkippedRows:
        count, some = 0, list[dict[str, Any]]()
        with self._service.connect() as lj, converting_errors(f"the relation {self._relation}", ""):
            relation = lj.relation(self._relation)
            for batch in iterator:
                if batch.num_rows:
                    receipt = relation.load(pa.table(batch), on_error=self._on_error)
                    count, some = count + receipt.skipped_count, some or receipt.skipped
        return SkippedRows(count, some)

    def commit(self, messages: list[SkippedRows | None]) -> None:
        skipped = [message for message in messages if message is not None]
        _report(f"the relation {self._relation}", sum(one.count for one in skipped), [bad for one in skipped for bad in one.some])

    def abort(self, messages: list[SkippedRows | None]) -> None:
        """What was sent is kept: it is written again when the job is run again."""


def _rows_of(receipt: dict[str, Any]) -> int:
    return int(receipt["applied"] + receipt["ignored"] + receipt["skipped_count"])


def _report(what: str, count: int, some: list[dict[str, Any]]) -> None:
    if count:
        log.warning("%s: %d bad rows were skipped (on_error), such as %s", what, count, "; ".join(some_bad(some)))
