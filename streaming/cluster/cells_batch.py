"""A batch join in cells: rows are validated and routed, sent as blobs to the partition of their cell, and each cell streams its rows out.

Two Python stages; nothing is sorted, and at most a chunk of the output is held. Costs in processor time, according to the benchmark
`cluster_batch`: 3 µs per row if the output has as many; 50 ms per task, of which 25 are Spark's own and 5 those of an empty cell. Memory:
the rows and structures of one cell in each Python worker.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache, partial, reduce
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from livejoin.wire.arrow import validate_record_batch
from livejoin.wire.budget import UNBOUNDED
from livejoin.wire.schema import RelationDefinition, parse_relation
from service.engine.headless import Cell, CellHome, over, parse_for_cells
from service.errors import Problem
from service.query.conditions import ColumnRef, Filter
from service.tables.endpoints import endpoints
from service.views.parse import View
from streaming.cluster.frames import ROW, TIE, Table, hashed
from streaming.cluster.layout import CoordinateValues, Layout, Member, Role
from streaming.cluster.packing import SCHEMA, gathered, here, packed, unpacked
from streaming.cluster.workers import freeze_modules

VIEW = "v"
_ROWS_OF_A_PARTITION = 40  # bits
_PLANS = 8  # of which a worker keeps what it has read: there are as many as queries run at once


def require_address_space(spark: SparkSession) -> None:
    """Raises ValueError if workers may not reserve the address space that cells need."""
    limit = spark.conf.get("spark.executor.pyspark.memory", None)
    if limit is not None:
        raise ValueError(
            f"spark.executor.pyspark.memory is {limit}, which limits Python's address space: cells reserve much of it but use little. "
            "Unset it, and use spark.executor.memoryOverhead for Python's memory"
        )


class BadRows(ValueError):
    """Invalid rows of a frame; the text names the first."""


class CellValidator(NamedTuple):
    """Validates the rows of a role. Picklable. `strict`: an invalid row is an error; otherwise it has no partners."""

    relation: str
    definition: str
    members: tuple[Member | None, ...]
    strict: bool

    @classmethod
    def of(cls, role: Role, definition: RelationDefinition, strict: bool) -> CellValidator:
        return cls(role.relation, json.dumps(definition.to_json()), role.members, strict)

    def validated(self, batches: Iterable[pa.RecordBatch], partition: int) -> Iterator[CellRows]:
        """Some ten thousand rows at a time. Raises BadRows."""
        definition = parse_relation(json.loads(self.definition))
        numbered = 0
        for batch in gathered(batches):
            yield self._some(definition, batch, (partition << _ROWS_OF_A_PARTITION) + numbered)
            numbered += batch.num_rows

    def _some(self, definition: RelationDefinition, batch: pa.RecordBatch, first: int) -> CellRows:
        if definition.key == [ROW]:
            batch = batch.append_column(ROW, pa.array(np.arange(first, first + batch.num_rows)))
        validated = validate_record_batch(definition.rules, self.relation, batch.select(definition.rules.names), 0, UNBOUNDED)
        if validated.error_count and self.strict:
            error = validated.errors[0]
            raise BadRows(f"{validated.error_count} rows of {self.relation} are invalid; the first, in {error.column}: {error.reason}")
        if validated.error_count:
            batch = batch.take(pa.array(validated.changes.index))
        rows, given = validated.changes.rows.arrow, list[CoordinateValues | None]()
        for index, member in enumerate(self.members):
            if member is None:
                given.append(None)
            elif member.interval is None:
                given.append(CoordinateValues(_numbers(batch, hashed(index))))
            else:
                given.append(CoordinateValues(_numbers(batch, hashed(index)), *endpoints(rows, definition.intervals[member.interval])))
        return CellRows(rows, _numbers(batch, TIE), given)


class CellRows(NamedTuple):
    rows: pa.RecordBatch
    ties: np.ndarray[Any, np.dtype[np.int64]]
    given: list[CoordinateValues | None]


def _numbers(batch: pa.RecordBatch, name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    found: np.ndarray[Any, np.dtype[np.int64]] = batch.column(name).to_numpy()
    return found


class CellPlan(NamedTuple):
    """What executors receive: plain data."""

    layout: str
    relations: Mapping[str, str]  # by name, the definition
    view: str  # its definition

    def definitions(self) -> dict[str, RelationDefinition]:
        return {name: parse_relation(json.loads(text)) for name, text in self.relations.items()}

    def own(self) -> dict[str, RelationDefinition]:
        """The relations of a cell: of each role, with the flags of its rows."""
        layout, relations = Layout.of_json(self.layout), self.definitions()
        return {f"r{index}": _with_flags(relations[role.relation], role, layout) for index, role in enumerate(layout.roles)}

    def cell(self) -> tuple[Cell, list[str], list[pa.Schema]]:
        """An empty one; the names of its views, which have its rows together; what blobs of each role look like."""
        own, views, homes, schemas = _parsed(self.layout, tuple(self.relations.items()), self.view)
        return Cell(own, views, homes), [one.name for one in views], schemas


class _ParsedJob(NamedTuple):
    own: dict[str, RelationDefinition]
    views: list[View]
    homes: list[CellHome]
    schemas: list[pa.Schema]


@lru_cache(_PLANS)
def _parsed(layout_text: str, relation_texts: tuple[tuple[str, str], ...], view_text: str) -> _ParsedJob:
    """What all cells of a plan share. A worker opens many of them, one after the other."""
    plan = CellPlan(layout_text, dict(relation_texts), view_text)
    layout, own = Layout.of_json(layout_text), plan.own()
    view, names = parse_for_cells(VIEW, json.loads(view_text), plan.definitions()), layout.names()
    views, is_of_pairs = [], set(names) == set(dict(view.query.aliases))  # otherwise EXISTS: a row may be found in each of its cells
    for index, tests in enumerate(layout.home_tests() if is_of_pairs else [[]]):
        filters = [Filter(ColumnRef(alias, here(coordinate)), "=", is_here) for alias, coordinate, is_here in tests]
        views.append(over(view, own, names, filters)._replace(name=f"{VIEW}{index}"))
    homes = [CellHome({alias: (of, here(position)) for alias, of in intervals.items()}) for position, intervals in layout.homes()]
    return _ParsedJob(own, views, homes, [one.arrow_schema() for one in own.values()])


def all_rows(name: str, relation: str, definitions: Mapping[str, RelationDefinition]) -> View:
    """A view of all columns of a relation, in their order. They are not listed, because a name such as "a as b" would read as two."""
    return parse_for_cells(name, {"from": {"x": relation}}, definitions)


def _with_flags(definition: RelationDefinition, role: Role, layout: Layout) -> RelationDefinition:
    flags = [
        {"name": here(index), "type": "bool"}
        for index, (one, member) in enumerate(zip(layout.coordinates, role.members, strict=True))
        if one.kind != "hash" and member is not None
    ]
    plain = definition.to_json()
    return parse_relation(plain | {"columns": [*plain["columns"], *flags]})


def join_in_cells(tables: Mapping[str, Table], definitions: Mapping[str, RelationDefinition], view: Mapping[str, Any], layout: Layout,
                  strict: bool) -> DataFrame:  # fmt: skip
    """The rows of the view. `tables`, `definitions`: by relation. Raises ValueError (`require_address_space`)."""
    require_address_space(next(iter(tables.values())).frame.sparkSession)
    plan = CellPlan(layout.to_json(), {name: json.dumps(one.to_json()) for name, one in definitions.items()}, json.dumps(view))
    cell, names, _ = plan.cell()
    schema = cell.schema(names[0])
    blobs = []
    for index, role in enumerate(layout.roles):
        validate = CellValidator.of(role, definitions[role.relation], strict)
        prepared = tables[role.relation].prepared(role.members)
        blobs.append(prepared.mapInArrow(partial(_routed, layout.to_json(), index, validate), from_arrow_schema(SCHEMA)))
    together = reduce(DataFrame.unionAll, blobs).repartitionById(layout.cells, "cell")
    return together.mapInArrow(partial(_joined, plan), from_arrow_schema(schema))


def _routed(layout_text: str, index: int, validate: CellValidator, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    freeze_modules()
    layout = Layout.of_json(layout_text)
    context = TaskContext.get()
    for validated in validate.validated(batches, context.partitionId() if context is not None else 0):
        yield packed(index, validated.rows, layout.route(layout.roles[index], validated.ties, validated.given))


def _joined(plan: CellPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    freeze_modules()
    cell, names, schemas = plan.cell()
    one: int | None = None
    for (label, role), blobs in groupby(unpacked(batches, schemas), itemgetter(0, 1)):
        assert one in (None, label), "a partition has one cell"
        one = label
        for rows in gathered(blob for _, _, blob in blobs):
            try:
                cell.load(f"r{role}", rows)
            except Problem:  # its only one
                relation = Layout.of_json(plan.layout).roles[role].relation
                key = ", ".join(parse_relation(json.loads(plan.relations[relation])).key)
                raise BadRows(f"two rows of {relation} have the same key ({key})") from None
    if one is not None:
        for name in names:
            yield from cell.rows(name)
