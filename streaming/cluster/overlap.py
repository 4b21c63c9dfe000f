"""Overlap joins of two Spark frames.

Up to some number of pairs, Spark compares all of them. Otherwise cells find the pairs. Rows with equal *values* (the columns `on`, start
and end) have the same partners, so the rest is done by joins on equal values:

    semi, anti   cells find the values of `a` that have a partner, and Spark joins `a` with them
    left         the inner join, and the anti join with nulls
    other types  if cells do not support a column, they join only the values, and Spark joins the pairs with the frame
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streaming.cluster.cells_batch import join_in_cells
from streaming.cluster.frames import HIGHEST, LOWEST, Table, checked, closed, is_continuous, is_kept, opens_of, require_kept
from streaming.cluster.layout import Layout

Interval = Sequence[str]
_HOW = {"inner": "inner", "left": "left", "semi": "left_semi", "anti": "left_anti"}  # in words of Spark


class Side(NamedTuple):
    """`frame`: its columns are `a0`, `a1`, … or `b0`, `b1`, …; `interval`: start, end, and bounds."""

    frame: DataFrame
    keys: tuple[str, ...]
    interval: tuple[str, str, str]

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.keys, *self.interval[:2])))

    def has_value(self) -> Column:
        start, end, bounds = self.interval
        if start == end:
            return F.col(start).isNotNull()  # a null point would be in all cells
        return F.coalesce(self.is_not_after(*closed(self.frame, self.interval), bounds), F.lit(True))

    def is_not_after(self, low: Column, high: Column, bounds: str) -> Column:
        """Of `closed` intervals."""
        return low < high if is_continuous(self.frame, self.interval) and any(opens_of(bounds)) else low <= high

    def bounded(self) -> DataFrame:
        """The rows with the ends as the columns `low` and `high` behind the side's letter: infinite if unbounded; null if there is no
        value. In a condition on pairs, expressions of a row would be evaluated for each pair."""
        letter = self.interval[0][0]
        least, most = (float("-inf"), float("inf")) if is_continuous(self.frame, self.interval) else (LOWEST, HIGHEST)
        low, high = closed(self.frame, self.interval)
        low = F.when(self.has_value(), F.coalesce(low, F.lit(least)))
        return self.frame.withColumns({f"{letter}_low": low, f"{letter}_high": F.coalesce(high, F.lit(most))})

    def able(self) -> DataFrame:
        """The rows that may have partners."""
        return self.frame.where(self.has_value())

    def table(self, is_whole: bool) -> Table:
        """These rows; otherwise only their distinct values."""
        frame = self.able()
        return Table(frame if is_whole else frame.select(*self.values).distinct(), (), {"i": self.interval})

    def in_other_names(self, rows: DataFrame) -> tuple[DataFrame, Column]:
        """Some rows that have the values, and whether one has those of a row of the frame."""
        renamed = rows.withColumnsRenamed({name: f"_{name}" for name in self.values})
        return renamed, reduce(and_, (F.col(name).eqNullSafe(F.col(f"_{name}")) for name in self.values))


def side_of(letter: str, frame: DataFrame, interval: Interval, on: Sequence[str], bounds: str) -> Side:
    """Raises ValueError, TypeError, BadDefinition."""
    if frame.isStreaming:
        raise ValueError(f"{letter} is a stream, but overlap_join joins only batch frames: join streams with live_join")
    if isinstance(interval, str) or len(interval) != 2:
        raise ValueError(f"{letter}_interval is {interval!r}: write the names of two columns (for a point, one name twice)")
    names = {name: f"{letter}{index}" for index, name in enumerate(frame.columns)}
    if len(names) < len(frame.columns):
        raise ValueError(f"{letter} has two columns of one name ({', '.join(frame.columns)}): rename one of them")
    for name in (*on, *interval):
        if name not in names:
            raise ValueError(f"{letter} has no column {name}: its columns are {', '.join(frame.columns)}")
    require_kept(frame.schema[name] for name in (*on, *interval))
    renamed = frame.toDF(*names.values())
    start, end = (names[name] for name in interval)
    Table(renamed.select(*{start, end}), (), {"i": (start, end, bounds)}).definition()  # bounds, and types that intervals may have
    own = (start, end, bounds if start != end else "[]")
    said = f"{letter}.{interval[0]}", f"{letter}.{interval[1]}"
    return Side(checked(renamed, own, said), tuple(names[name] for name in on), own)


def names_of(a: DataFrame, b: DataFrame, on: Sequence[str], how: str, suffixes: Sequence[str | None]) -> list[str]:
    """Those of the joined columns. Raises ValueError. Spark finds columns without regard to case."""
    if how not in _HOW:
        raise ValueError(f"how is {how!r}: write one of {', '.join(_HOW)}")
    if how in ("semi", "anti"):
        return list(a.columns)
    sides = a.columns, [name for name in b.columns if name not in on]
    both = set.intersection(*({name.lower() for name in side} for side in sides))
    names = [name + (end or "") * (name.lower() in both) for side, end in zip(sides, suffixes, strict=True) for name in side]
    lower = [name.lower() for name in names]
    if twice := [name for name in names if lower.count(name.lower()) > 1]:
        raise ValueError(f"the join would have two columns {twice[0]}: write other suffixes, or rename one of them")
    return names


class PlannedOverlap(NamedTuple):
    """`names`: of the joined columns. `layout`: of cells; None: Spark compares all pairs."""

    a: Side
    b: Side
    how: str
    names: Sequence[str]
    layout: Layout | None = None
    description: str = "compares    all pairs of rows, which are few"

    def tables(self) -> dict[str, Table]:
        return {"a": self.a.table(self.travels(self.a)), "b": self.b.table(self.travels(self.b))}

    def travels(self, side: Side) -> bool:
        """Whether the rows of a frame pass through cells as they are."""
        return self.how in ("inner", "left") and is_kept(side.frame)

    def view(self, tables: Mapping[str, Table], text: str = "SELECT {} FROM a JOIN b ON {}") -> dict[str, Any]:
        equal = (f"a.{one} = b.{other}" for one, other in zip(self.a.keys, self.b.keys, strict=True))
        columns = (f"{letter}.{name} AS {name}" for letter, table in tables.items() for name in table.frame.columns)
        return {"sql": text.format(", ".join(columns), " AND ".join(["overlaps(a.i, b.i)", *equal])), "changes": False}

    def joined(self) -> DataFrame:
        found = self._compared() if self.layout is None else self._in_cells(self.layout)
        of_b = [] if self.how in ("semi", "anti") else [one for one in self.b.frame.schema.fields if one.name not in self.b.keys]
        fields = zip([*self.a.frame.schema.fields, *of_b], self.names, strict=True)
        return found.select(*(F.col(one.name).cast(one.dataType).alias(name) for one, name in fields))

    def _compared(self) -> DataFrame:
        a, b = self.a, self.b
        starts, ends = a.interval[2][0] + b.interval[2][1], b.interval[2][0] + a.interval[2][1]
        meets = [a.is_not_after(F.col("a_low"), F.col("b_high"), starts), a.is_not_after(F.col("b_low"), F.col("a_high"), ends)]
        equal = [F.col(x) == F.col(y) for x, y in zip(a.keys, b.keys, strict=True)]
        return a.bounded().join(F.broadcast(b.bounded()), reduce(and_, [*equal, *meets]), _HOW[self.how])

    def _in_cells(self, layout: Layout) -> DataFrame:
        a, b = self.a, self.b
        if self.how in ("semi", "anti"):
            return self._beside_partners(layout, self.how)
        tables = self.tables()
        pairs = _found(tables, self.view(tables), layout)
        for side in (a, b):
            if not self.travels(side):
                rows, has_them = side.in_other_names(pairs)
                pairs = rows.join(side.frame, has_them)
        if self.how == "inner":
            return pairs
        nulls = (F.lit(None).cast(one.dataType).alias(one.name) for one in b.frame.schema.fields)
        return pairs.select(*a.frame.columns, *b.frame.columns).unionAll(self._beside_partners(layout, "anti").select("*", *nulls))

    def _beside_partners(self, layout: Layout, how: str) -> DataFrame:
        """The rows of `a` whose values have a partner, or those whose have none. A row may find one in several cells."""
        tables = {"a": self.a.table(False), "b": self.b.table(False)}
        view = self.view({"a": tables["a"]}, "SELECT {} FROM a WHERE EXISTS (SELECT 1 FROM b WHERE {})")
        rows, has_them = self.a.in_other_names(_found(tables, view, layout))
        return self.a.frame.join(rows, has_them, _HOW[how])


def _found(tables: Mapping[str, Table], view: Mapping[str, Any], layout: Layout) -> DataFrame:
    return join_in_cells(tables, {letter: table.definition() for letter, table in tables.items()}, view, layout, strict=False)
