"""Another layout for a query over streams: its rows go to other cells, and a new checkpoint continues the old one.

The rows of the relations are read from the states of an epoch, each once, and sent again. A query that reads nothing takes them as its
initial state. Spark writes this state as epoch 0, and then, as when it repartitions states, as the epoch that was read; the offsets of the
sources are those of the old checkpoint. So the next epoch has the same number and the same changes as it would have had.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial, reduce
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkAttributeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from service.engine.headless import Cell, parse_for_cells
from streaming.cluster.cells_batch import VIEW, all_rows, require_address_space
from streaming.cluster.cells_stream import StreamPlan
from streaming.cluster.changes import Source, labels
from streaming.cluster.checkpoint import Checkpoint
from streaming.cluster.frames import Table
from streaming.cluster.layout import Layout
from streaming.cluster.snapshot import by_cell, logs_of_cells
from streaming.cluster.streams import kept_by, layout_of, require_settings, resolver_of, sent, sources_of


def reshard(
    spark: SparkSession, checkpoint: str, target: str, layout: str | None = None, *, width: int | None = None, epoch: int | None = None,
    max_copies: float = 8.0,
) -> int:  # fmt: skip
    """Make the checkpoint `target`, with which the stopped query of `checkpoint` continues in another layout: the text of `stream_layout`,
    or an even one, with bands of this `width`, over the partitions of the session (`spark.sql.shuffle.partitions`). Pass the same to
    `live_join`.

    Returns the epoch whose states it has: by default the last, and then the query keeps its identity and the numbers of its epochs, so that
    sinks that recognize them continue. After an earlier `epoch`, another query, for a new sink, reports the changes again.

    Raises ValueError (no checkpoint of a view, or its query is running; a target that exists; an epoch that is not kept; a layout of
    another view, or one that changes the order of the sources), NotDistributable (more than `max_copies` copies of a row). If it fails,
    delete `target`. Not over Connect. Cost: that of a batch over the rows; all states are written twice.
    """
    require_settings(spark)
    require_address_space(spark)
    old, new = _checkpoints(spark, checkpoint, target)
    last = old.last()
    at = last if epoch is None else epoch
    old.require_kept(at)
    plan, logs = logs_of_cells(spark, checkpoint, at)
    cells = plan.cells
    query = parse_for_cells(VIEW, json.loads(cells.view), cells.definitions()).query
    another = plan._replace(cells=cells._replace(layout=layout_of(query, spark, layout, width, max_copies)))
    sources = sources_of(another, cells.definitions())
    _require_order(sources_of(plan, cells.definitions()), sources)
    begun = _begin(spark, another, sources, [_rows(plan, logs, source.relation) for source in sources])
    begun.writeStream.format("noop").option("checkpointLocation", target).trigger(availableNow=True).start().awaitTermination()
    if at:
        new.write_states(old, at)
    if old.last() != last:
        raise ValueError(f"the query of {checkpoint} has continued elsewhere in the meantime: stop it, delete {target}, and try again")
    new.go_on(old, at, at == last)
    return at


def _checkpoints(spark: SparkSession, checkpoint: str, target: str) -> tuple[Checkpoint, Checkpoint]:
    """Raises ValueError."""
    try:
        old, new = Checkpoint(spark, checkpoint), Checkpoint(spark, target)
    except PySparkAttributeError:
        raise ValueError("only Spark Classic can write checkpoints: start the session without Connect") from None
    if new.exists():
        raise ValueError(f"{target} exists already: use a folder that does not exist, or delete it")
    own = old.id()
    if any(query.id == own for query in spark.streams.active):
        raise ValueError(f"the query of {checkpoint} is running: stop it")
    return old, new


def _require_order(old: Sequence[Source], new: Sequence[Source]) -> None:
    """Offsets are stored by the positions of sources in the plan, in which those that a resolver reads come last. Raises ValueError."""
    one, other = ([source.relation for source in sorted(some, key=lambda source: source.resolved)] for some in (old, new))
    if one != other:
        said = f"with this layout the sources would be read in the order {', '.join(other)}, but the checkpoint has {', '.join(one)}"
        raise ValueError(f"{said}: use a layout by the same columns, or read the streams from their beginning into a new checkpoint")


def _begin(spark: SparkSession, plan: StreamPlan, sources: Sequence[Source], tables: Sequence[Table]) -> DataFrame:
    """The stages of the query, which read nothing and begin with these rows."""
    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    blobs = ticks.where("value < 0").selectExpr("int(value) AS cell", "int(value) AS role", "binary(string(value)) AS rows")
    rows = [(source._replace(kind="inserts"), table) for source, table in zip(sources, tables, strict=True)]
    resolver = resolver_of(plan, sources)
    if resolver is not None:
        blobs = kept_by(resolver, blobs, reduce(DataFrame.unionAll, (sent(source, table) for source, table in rows if source.resolved)))
    to_cells = (sent(source._replace(resolved=False), table) for source, table in rows)
    return kept_by(plan, blobs, reduce(DataFrame.unionAll, to_cells))


class _RelationRead(NamedTuple):
    """How the rows of a relation are read from cells, each once. Plain data. `role`: its first. `cells`: labels of the cells that have
    them."""

    plan: str
    role: int
    cells: frozenset[int]

    def opened(self) -> tuple[Cell, tuple[str, ...]]:
        """A cell with a view of the rows of the role, whose flags are behind the columns of its relation; the names of these."""
        cells = StreamPlan.of_json(json.loads(self.plan)).cells
        own, role = cells.own(), Layout.of_json(cells.layout).roles[self.role]
        return Cell(own, [all_rows(VIEW, f"r{self.role}", own)]), cells.definitions()[role.relation].rules.names

    def schema(self) -> pa.Schema:
        cell, names = self.opened()
        return pa.schema([one.with_name(name) for name, one in zip(names, cell.schema(VIEW), strict=False)])

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = self.schema()
        for label, blobs in by_cell(batches):
            if label in self.cells:
                yield from self._rows_of_cell(schema, blobs)

    def _rows_of_cell(self, schema: pa.Schema, blobs: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
        cell, names = self.opened()
        for blob in blobs:
            cell.replay(blob)
        for rows in cell.rows(VIEW):
            first = reduce(pc.and_, rows.columns[len(names) :], pa.array(np.ones(len(rows), np.bool_)))
            yield pa.RecordBatch.from_arrays(rows.filter(first).columns[: len(names)], schema=schema)


def _rows(plan: StreamPlan, logs: DataFrame, relation: str) -> Table:
    """Of the relation, each once."""
    layout = Layout.of_json(plan.cells.layout)
    index, role = next((index, role) for index, role in enumerate(layout.roles) if role.relation == relation)
    read = _RelationRead(json.dumps(plan.to_json()), index, frozenset(labels(layout.cells)[layout.firsts(role)].tolist()))
    frame = logs.mapInArrow(partial(_RelationRead.run, read), from_arrow_schema(read.schema()))
    return Table(frame, plan.cells.definitions()[relation].key)
