"""Batch joins of Spark frames: the entry point to the other modules here. `pyspark_livejoin` exports these names to users.

    overlap_join(bookings, rooms, on="room", how="left")
    live_join({"sql": "SELECT …"}, {"bookings": Table(frame, key=["id"], intervals={"stay": ("starts", "ends")}), …})
    print(explain(…))          # the same arguments

The plan is chosen by samples of 100,000 rows: each frame is counted, sampled, and then read again by the join, so cache a frame that is
expensive to compute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from pyspark.errors import PySparkAttributeError
from pyspark.sql import DataFrame, SparkSession

from livejoin.wire.schema import RelationDefinition, parse_relation
from service.engine.headless import parse_for_cells
from streaming.cluster.candidates import ChosenLayout, candidates, choose
from streaming.cluster.cells_batch import VIEW, CellValidator, join_in_cells
from streaming.cluster.frames import Table
from streaming.cluster.layout import Coordinate, CoordinateValues, Role
from streaming.cluster.overlap import Interval, PlannedOverlap, names_of, side_of
from streaming.cluster.sampling import SAMPLED, Sample, Samples, pairs_of

_ROWS_OF_A_CELL, _FEWEST_OF_A_CELL = 1_000_000, 20_000
_COMPARED, _BROADCAST = 3 * 10**7, 10**6  # pairs of rows that Spark compares, and rows of `b`, of which each executor then has a copy
_SEED = 1
_NOTHING = np.empty(0, np.int64)


class PlannedJoin(NamedTuple):
    tables: Mapping[str, Table]
    definitions: Mapping[str, RelationDefinition]
    view: Mapping[str, Any]
    chosen: ChosenLayout
    samples: Samples

    def describe(self) -> str:
        lines = []
        for one in self.chosen.layout.coordinates:
            members = ", ".join(f"{alias}.{member.interval or '+'.join(member.columns) or 'row'}" for alias, member in one.members.items())
            lines.append(f"coordinate  {one.kind} of {members}: {one.size}")
        rows = sum(sample.rows for sample in self.samples.values())
        chosen = self.chosen
        lines.append(f"cells       {chosen.layout.cells}, {chosen.copies:.2f} copies a row; {chosen.largest:,.0f} of {rows:,} rows in one")
        for name, part in chosen.hot:
            lines.append(f"hot key     {part:.0%} of the rows have one {name}, all in one cell: an overlap in an INNER JOIN divides it")
        return "\n".join(lines)


def overlap_join(
    a: DataFrame, b: DataFrame, a_interval: Interval = ("starts", "ends"), b_interval: Interval = ("starts", "ends"),
    on: Sequence[str] | str = (), bounds: str = "[)", how: str = "inner", suffixes: Sequence[str | None] = ("_x", "_y"),
) -> DataFrame:  # fmt: skip
    """The pairs of rows whose intervals share a point, and that are equal in the columns `on`: the columns of `a`, then those of `b`
    without `on`; names that both have get the `suffixes`. `how`: "left" adds the rows of `a` that have no partner, with nulls; "semi" and
    "anti" are the rows of `a` that have a partner, and those that have none. `bounds` are those of both; a null end is unbounded, and a row
    with an empty interval, or a null in `on`, has no partners. An end that is NaN, infinite, or next to the limits of int64 fails the job.

    Raises ValueError (the arguments), TypeError (a type in `on` or the intervals that cells do not support, or that differs in `on`),
    BadDefinition, Problem.
    """
    return _plan_overlap(a, b, a_interval, b_interval, on, bounds, how, suffixes).joined()


def live_join(definition: Mapping[str, Any] | str, tables: Mapping[str, Table], max_copies: float = 8.0) -> DataFrame:
    """The rows of the view that `definition` (SQL, or JSON as for a service) defines over these tables, by name.

    Raises NotDistributable (rows that belong together would not be in one cell; or more than `max_copies` copies of a row), Problem (the
    view), BadDefinition, TypeError (the tables). Bad rows (a null in a key, an empty interval) fail the job, as do two rows with the same
    key in one cell. In different cells they are two rows: keys are not compared across cells, which would need a shuffle.
    """
    planned = _plan_view(definition, tables)
    planned.chosen.require_few_copies(max_copies)
    return join_in_cells(planned.tables, planned.definitions, planned.view, planned.chosen.layout, strict=True)


def explain(*arguments: Any, **named: Any) -> str:
    """How a join would be executed, line by line; the arguments are those of `overlap_join`, or of `live_join`. Only counts and samples."""
    first = arguments[0] if arguments else named.get("a")
    if isinstance(first, DataFrame):
        return _plan_overlap(*arguments, **named).description
    return _plan_view(*arguments, **named).describe()


def _plan_overlap(
    a: DataFrame, b: DataFrame, a_interval: Interval = ("starts", "ends"), b_interval: Interval = ("starts", "ends"),
    on: Sequence[str] | str = (), bounds: str = "[)", how: str = "inner", suffixes: Sequence[str | None] = ("_x", "_y"),
) -> PlannedOverlap:  # fmt: skip
    on = (on,) if isinstance(on, str) else on
    x, y = side_of("a", a, a_interval, on, bounds), side_of("b", b, b_interval, on, bounds)
    planned = PlannedOverlap(x, y, how, names_of(a, b, on, how, suffixes))
    tables = planned.tables()
    view = planned.view(tables)
    definitions = {letter: table.definition() for letter, table in tables.items()}
    for name, *keys in zip(on, x.keys, y.keys, strict=True):
        mine, its = (one.column(key).comparable for one, key in zip(definitions.values(), keys, strict=True))
        if mine != its:
            raise TypeError(f"{name} is {mine} in a and {its} in b: cast one of them")
    parse_for_cells(VIEW, view, definitions)  # refuses intervals of different types
    sides = {"a": x, "b": y}
    counts = {letter: side.able().count() for letter, side in sides.items()}
    if counts["a"] * counts["b"] <= _COMPARED and counts["b"] <= _BROADCAST:
        return planned
    plan = _plan_view(view, tables, counts={letter: counts[letter] for letter, side in sides.items() if planned.travels(side)})
    samples = plan.samples["a"], plan.samples["b"]
    (index,) = (index for index, one in samples[0].given.items() if one.starts is not None)
    return planned._replace(layout=plan.chosen.layout, description=f"{plan.describe()}\nrows out    about {pairs_of(*samples, index):,.0f}")


def _plan_view(
    definition: Mapping[str, Any] | str, tables: Mapping[str, Table], max_copies: float = 8.0, counts: Mapping[str, int] | None = None
) -> PlannedJoin:  # fmt: skip
    """The caller checks `max_copies`. `counts`: of rows, by table, as far as they are known. Raises ValueError (a stream)."""
    if streams := [name for name, table in tables.items() if table.frame.isStreaming]:
        raise ValueError(f"{min(streams)} is a stream, which cannot be sampled: use stream_layout with batch frames of similar rows")
    view = {"sql": definition} if isinstance(definition, str) else dict(definition)
    definitions = {name: table.definition() for name, table in tables.items()}
    query = parse_for_cells(VIEW, view, definitions).query
    aliases = query.whole.aliases
    possible = candidates(query)
    samples, counts = dict[str, Sample](), dict(counts or {})
    for alias, relation in aliases:
        if relation not in counts:
            counts[relation] = tables[relation].frame.count()
        samples[alias] = sample_of(alias, relation, tables[relation], definitions[relation], possible, counts[relation])
    rows = sum(counts[relation] for _, relation in aliases)
    cells = _cells(_spark(tables), rows)
    return PlannedJoin(tables, definitions, view, choose(aliases, possible, samples, cells), samples)


def sample_of(
    alias: str, relation: str, table: Table, definition: RelationDefinition, possible: Sequence[Coordinate], rows: int
) -> Sample:
    """Of an alias's frame. `rows`: their number. The driver gets only the columns that determine cells."""
    role = Role(relation, tuple(one.members.get(alias) for one in possible))
    needed = _needed(definition, role)
    part = min(1.0, SAMPLED / max(1, rows))
    frame = table.prepared(role.members)
    named = {column.name for column in definition.columns} - {column.name for column in needed.columns}
    drawn = (frame if part == 1.0 else frame.sample(fraction=part, seed=_SEED)).drop(*named)
    validated = list(CellValidator.of(role, needed, False).validated(drawn.toArrow().to_batches(), 0))
    members = [(index, one) for index, one in enumerate(role.members) if one is not None]
    if not validated:
        ends = (_NOTHING, _NOTHING)
        return Sample(0, _NOTHING, {index: CoordinateValues(_NOTHING, *(ends if one.interval else ())) for index, one in members})
    given = {index: _together([one.given[index] for one in validated]) for index, _ in members}
    return Sample(rows, np.concatenate([one.ties for one in validated]), given)


def _needed(definition: RelationDefinition, role: Role) -> RelationDefinition:
    """The same relation with only its key, and the ends of the role's intervals."""
    plain = definition.to_json()
    intervals = {one.interval: plain["intervals"][one.interval] for one in role.members if one is not None and one.interval is not None}
    ends = {column for one in intervals.values() for name, column in one.items() if name != "bounds"}
    columns = [column for column in plain["columns"] if column["name"] in ends.union(definition.key)]
    return parse_relation({"columns": columns, "key": plain["key"], "intervals": intervals})


def _together(given: Sequence[CoordinateValues | None]) -> CoordinateValues:
    some = [one for one in given if one is not None]
    if some[0].starts is None:
        return CoordinateValues(np.concatenate([one.hashes for one in some]))
    hashes, starts, ends = (np.concatenate(column) for column in zip(*some, strict=True))
    return CoordinateValues(hashes, starts, ends)


def _cells(spark: SparkSession, rows: int) -> int:
    """A power of two: at least one for each core, unless there are few rows; none with more rows than a worker's memory should hold."""
    cores: int
    try:
        cores = spark.sparkContext.defaultParallelism
    except PySparkAttributeError:  # of Connect, which does not tell
        cores = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    wanted = max(min(cores, rows // _FEWEST_OF_A_CELL), rows // _ROWS_OF_A_CELL, 1)
    return 1 << (wanted - 1).bit_length()


def _spark(tables: Mapping[str, Table]) -> SparkSession:
    return next(iter(tables.values())).frame.sparkSession
