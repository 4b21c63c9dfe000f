"""Joins of streams on a cluster: the entry point. `pyspark_livejoin` exports `live_join`, for both streams and frames.

    changes = live_join({"sql": "SELECT …"}, {"bookings": Table(stream, key=["id"], intervals={"stay": ("starts", "ends")}), …})
    changes.writeStream.option("checkpointLocation", …).foreachBatch(…).start()

    changes → packed by key → resolver → packed by cell → cells → packed by identity → netted → changes of the view
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial, reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from livejoin.wire.schema import OP_COLUMN, RelationDefinition
from service.engine.headless import parse_for_cells
from service.query.model import Query
from streaming.cluster import batch
from streaming.cluster.cells_batch import VIEW, CellPlan, require_address_space
from streaming.cluster.cells_stream import StreamPlan
from streaming.cluster.changes import SEQ_COLUMN, Kind, Source, send
from streaming.cluster.frames import WHOLE, Table
from streaming.cluster.keeping import Keeper, Plan
from streaming.cluster.layout import Layout, Member
from streaming.cluster.netting import EPOCH_COLUMN, Netting
from streaming.cluster.packing import SCHEMA
from streaming.cluster.resolver import ResolverPlan
from streaming.cluster.stream_layout import even_layout, plain, require_fits
from streaming.cluster.workers import Processor

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_CELLS_A_PARTITION = 4


def live_join(
    definition: Mapping[str, Any] | str, tables: Mapping[str, Table], max_copies: float = 8.0, *,
    layout: str | None = None, width: int | None = None, before_images: bool = False,
) -> DataFrame:  # fmt: skip
    """The rows of the view that `definition` (SQL, or JSON as for a service) defines over these tables, by name; for streams, its changes:
    `_op` (`insert`, `delete`), `_epoch` (the micro-batch), the identity of a row as `alias.column`, and the row. In an epoch, the deletes
    of a partition come first, and all changes of an identity are in one partition.

    A stream has new rows only; or `_op` (`insert`, `upsert`, `delete`) and `_seq`, which orders the changes of a key in a micro-batch, and
    then a delete needs only its key; or, with `before_images`, only `_op`: each deleted row as it was, in any order. `layout`: the text of
    `stream_layout`; by default, rows are assumed to be spread evenly. `width`: of the bands of time in which rows share a cell, needed if
    only intervals join, in the unit of the intervals (microseconds, days, whole numbers); several times the length of an interval.

    Raises NotDistributable (rows that belong together would not be in one cell; or more than `max_copies` copies of a row), Problem (the
    view), BadDefinition, TypeError (the tables), ValueError (streams, and the session's settings). Bad rows (a null key, an empty interval,
    a row that exists already) fail the query.
    """
    streams = {name for name, table in tables.items() if table.frame.isStreaming}
    if not streams:
        return batch.live_join(definition, tables, max_copies)
    if len(streams) < len(tables):
        raise ValueError(f"{min(set(tables) - streams)} is not a stream, but {min(streams)} is: read all of them as streams")
    spark = next(iter(tables.values())).frame.sparkSession
    require_settings(spark)
    require_address_space(spark)
    kinds = {name: _kind(name, table, before_images) for name, table in tables.items()}
    view = {"sql": definition} if isinstance(definition, str) else dict(definition)
    definitions = {name: plain(table).definition() for name, table in tables.items()}
    query = parse_for_cells(VIEW, view, definitions).query
    parts = _partitions(spark)
    layout = layout_of(query, spark, layout, width, max_copies)
    cells = CellPlan(layout, {name: json.dumps(one.to_json()) for name, one in definitions.items()}, json.dumps(view))
    return _changes_of_view(StreamPlan(cells, kinds, parts), tables, definitions)


def _changes_of_view(plan: StreamPlan, tables: Mapping[str, Table], definitions: Mapping[str, RelationDefinition]) -> DataFrame:
    opened = plan.opened()
    netting = Netting(opened.form)
    if taken := {OP_COLUMN, EPOCH_COLUMN} & set(opened.form.names):
        raise ValueError(f"the view has a column {min(taken)}, a name that is reserved for its changes: rename the column")
    sources = sources_of(plan, definitions)
    resolver = resolver_of(plan, sources)
    to_cells, to_keys = list[DataFrame](), list[DataFrame]()
    for source in sources:
        (to_keys if source.resolved else to_cells).append(sent(source, tables[source.relation]))
    if resolver is not None:
        to_cells.append(kept_by(resolver, reduce(DataFrame.unionAll, to_keys)))
    emitted = kept_by(plan, reduce(DataFrame.unionAll, to_cells))
    return emitted.repartitionById(plan.parts, "cell").mapInArrow(netting.run, from_arrow_schema(netting.schema))


def sent(source: Source, table: Table) -> DataFrame:
    """Its rows as blobs."""
    return table.prepared(source.members).mapInArrow(partial(send, source), from_arrow_schema(SCHEMA))


def sources_of(plan: StreamPlan, definitions: Mapping[str, RelationDefinition]) -> list[Source]:
    """The sources of the relations that the view uses."""
    layout, found, resolved = Layout.of_json(plan.cells.layout), list[Source](), 0
    for name in dict.fromkeys(role.relation for role in layout.roles):
        members = tuple(member for role in layout.roles if role.relation == name for member in role.members)
        is_resolved = plan.kinds[name] == "ordered" and not _key_tells(members, definitions[name])
        found.append(Source(name, resolved, plan.cells.relations[name], plan.kinds[name], members, plan.cells.layout, is_resolved))
        resolved += is_resolved
    return found


def resolver_of(plan: StreamPlan, sources: Sequence[Source]) -> ResolverPlan | None:
    resolved = [one.relation for one in sources if one.resolved]
    return ResolverPlan(plan.cells.layout, {name: plan.cells.relations[name] for name in resolved}) if resolved else None


def kept_by(plan: Plan, blobs: DataFrame, begin: DataFrame | None = None) -> DataFrame:
    """What cells tell. `begin`: blobs of the rows that they have before the first epoch."""
    state = None if begin is None else begin.groupBy("cell")
    return blobs.groupBy("cell").transformWithState(Processor(plan.stage, Keeper(plan)), from_arrow_schema(SCHEMA), "Append", "None", state)


def _key_tells(members: Sequence[Member | None], definition: RelationDefinition) -> bool:
    """Whether the key of a row determines its cells."""
    return all(one is None or (one.interval is None and set(one.columns) <= set(definition.key)) for one in members)


def _kind(name: str, table: Table, before_images: bool) -> Kind:
    """Raises ValueError."""
    if not table.key:
        raise ValueError(f"the stream {name} has no key: give Table(…, key=[…])")
    fields = {one.name: one.dataType for one in table.frame.schema.fields}
    if OP_COLUMN in fields and not isinstance(fields[OP_COLUMN], T.StringType):
        raise ValueError(f"{OP_COLUMN} of {name} is {fields[OP_COLUMN].simpleString()}, not a string")
    if OP_COLUMN not in fields and SEQ_COLUMN not in fields:
        return "inserts"
    if before_images and OP_COLUMN in fields:
        return "images"
    if SEQ_COLUMN not in fields:
        said = f"{name} has {OP_COLUMN} without {SEQ_COLUMN}: a micro-batch has no order, so a delete might precede the row that it deletes"
        raise ValueError(f"{said}; add {SEQ_COLUMN}, which grows with each change of a key, as an offset does, or use before_images")
    if not isinstance(fields[SEQ_COLUMN], WHOLE):
        raise ValueError(f"{SEQ_COLUMN} of {name} is {fields[SEQ_COLUMN].simpleString()}, not a whole number")
    return "ordered"


def require_settings(spark: SparkSession) -> None:
    """Raises ValueError."""
    if spark.conf.get(_PROVIDER, None) != _ROCKSDB:
        raise ValueError(f"joins of streams need RocksDB for their state: set {_PROVIDER} to {_ROCKSDB}")


def layout_of(query: Query, spark: SparkSession, layout: str | None, width: int | None, max_copies: float) -> str:
    """The given layout, or an even one. Raises NotDistributable, ValueError."""
    if layout is None:
        return even_layout(query, _CELLS_A_PARTITION * _partitions(spark), width, max_copies)
    require_fits(layout, query)
    return layout


def _partitions(spark: SparkSession) -> int:
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
