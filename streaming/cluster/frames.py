"""A Spark frame as a relation of cells: its definition, and the hashes that Spark computes of its rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from livejoin.wire.schema import RelationDefinition, parse_relation
from streaming.cluster.layout import Member

ROW, TIE = "_row", "_tie"
WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_PLAIN: Sequence[tuple[tuple[type, ...], str, T.DataType]] = (
    (WHOLE, "int64", T.LongType()),
    ((T.FloatType, T.DoubleType), "float64", T.DoubleType()),
    ((T.TimestampType,), "timestamp", T.TimestampType()),
    ((T.DateType,), "date", T.DateType()),
    ((T.StringType,), "string", T.StringType()),
    ((T.BooleanType,), "bool", T.BooleanType()),
    ((T.BinaryType,), "bytes", T.BinaryType()),
)
_MOST_DIGITS = 18
_OURS = re.compile(f"{TIE}|_(hash|here)[0-9]+")  # `hashed`; `here` in packing
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class Table:
    """A frame as a relation. `key`: the columns that identify a row; without a key, rows may be equal, and views cannot refer to a key.
    `intervals`: by name, the columns of start and end, optionally followed by bounds: "[)" (the default), "[]", "(]" or "()"; a null end is
    unbounded."""

    frame: DataFrame
    key: Sequence[str] = ()
    intervals: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def definition(self) -> RelationDefinition:
        """Raises BadDefinition, ValueError (a column's name is reserved, or Spark cannot pass it), TypeError (a column of a type that cells
        do not support)."""
        if ours := [name for name in self.frame.columns if _OURS.fullmatch(name)]:
            raise ValueError(f"the column name {ours[0]} is reserved for cells: rename the table's column")
        if odd := [name for name in self.frame.columns if "`" in name or name == "*"]:
            raise ValueError(f"Spark cannot pass a column named {odd[0]} to Python: rename it")
        columns: list[dict[str, Any]] = [
            {"name": one.name, "nullable": one.nullable and one.name not in self.key} | _kind(one) for one in self.frame.schema.fields
        ]
        if not self.key:
            columns.append({"name": ROW, "type": "int64"})
        intervals = {name: _interval(*columns) for name, columns in self.intervals.items()}
        return parse_relation({"columns": columns, "key": list(self.key) or [ROW], "intervals": intervals})

    def prepared(self, members: Sequence[Member | None]) -> DataFrame:
        """The rows in the form for cells, followed by `hashed(i)` of the columns of each member i, and TIE."""
        rows = [F.col(_quoted(one.name)).cast(_type(one)).alias(one.name) for one in self.frame.schema.fields]
        hashes = [self._hash(member.columns).alias(hashed(index)) for index, member in enumerate(members) if member is not None]
        return self.frame.select(*rows, *hashes, self._hash(self.key or self.frame.columns).alias(TIE))

    def _hash(self, names: Sequence[str]) -> Column:
        return F.xxhash64(*map(self._comparable, names)) if names else F.lit(0).cast("long")

    def _comparable(self, name: str) -> Column:
        """A form in which equal values are the same, whatever the type of the column."""
        one = self.frame.schema[name]
        kind = _type(one)
        if isinstance(kind, T.DecimalType):
            kind = T.DecimalType(_MOST_DIGITS, kind.scale)
        column = F.col(_quoted(name)).cast(kind)
        return column + F.lit(0.0) if isinstance(kind, T.DoubleType) else column  # -0.0 is 0.0


def require_kept(frame: DataFrame) -> None:
    """Raises TypeError (a column of a type that cells do not support, such as a text with a collation)."""
    for one in frame.schema.fields:
        _kind(one)


def whole(frame: DataFrame, name: str) -> Column:
    """The values of a column of integers, dates or timestamps as int64."""
    kind = frame.schema[name].dataType
    if isinstance(kind, T.TimestampType):
        return F.unix_micros(F.col(name))
    return (F.unix_date(F.col(name)) if isinstance(kind, T.DateType) else F.col(name)).cast("long")


def with_values(frame: DataFrame, start: str, end: str, bounds: str, said: tuple[str, str]) -> DataFrame:
    """The rows whose interval contains a value; a null point contains none, and would be in all cells. A value that cells do not support as
    an endpoint (NaN, an infinity, next to the limits of int64) is an error of the job, which names the columns as in `said`."""
    kind, ends, opens = frame.schema[start].dataType, (start, end), (bounds[0] == "(", bounds[1] == ")")
    if isinstance(kind, (T.FloatType, T.DoubleType)):
        bad = [F.isnan(F.col(name)) | (F.abs(F.col(name)) == F.lit(float("inf"))) for name in ends]
        has_value = F.col(start) < F.col(end) if any(opens) else F.col(start) <= F.col(end)
    elif isinstance(kind, T.DecimalType):
        bad = []
        has_value = F.col(end) - F.col(start) >= F.lit(Decimal(sum(opens)).scaleb(-kind.scale))
    else:
        first, last = numbers = [whole(frame, name) for name in ends]
        low = _LOWEST + (not opens[0]), _LOWEST + 1 + opens[1]
        high = _HIGHEST - 1 - opens[0], _HIGHEST - (not opens[1])
        bad = [~number.between(*between) for number, between in zip(numbers, zip(low, high, strict=True), strict=True)]
        distance = F.coalesce(F.try_subtract(last, first) >= F.lit(sum(opens)), F.lit(True))  # null: beyond int64
        has_value = (first <= last) & distance
    for name, is_bad, called in zip(ends, bad, said, strict=False):
        reason = F.format_string(f"{called.replace('%', '%%')}: %s cannot be an endpoint (write null for an unbounded side)", F.col(name))
        frame = frame.withColumn(name, F.when(is_bad, F.raise_error(reason)).otherwise(F.col(name)))
    return frame.where(F.coalesce(has_value, F.lit(start != end)))


def hashed(number: int) -> str:
    """The column with the hash for a coordinate."""
    return f"_hash{number}"


def _interval(start: str, end: str, bounds: str = "[)") -> dict[str, str]:
    return {"at": start} if start == end else {"start": start, "end": end, "bounds": bounds}


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _type(one: T.StructField) -> T.DataType:
    """The type that its values are converted to. Raises TypeError."""
    if isinstance(one.dataType, T.DecimalType):
        return one.dataType
    found = next((wide for kinds, _, wide in _PLAIN if isinstance(one.dataType, kinds)), None)
    if found is None or (isinstance(one.dataType, T.StringType) and not one.dataType.isUTF8BinaryCollation()):
        raise TypeError(f"the column {one.name} is {one.dataType.simpleString()}, which cells do not support: leave it out, or cast it")
    return found


def _kind(one: T.StructField) -> dict[str, Any]:
    kind = _type(one)
    if isinstance(kind, T.DecimalType):
        if kind.precision > _MOST_DIGITS:
            raise TypeError(f"the column {one.name} is {kind.simpleString()}; cells support up to {_MOST_DIGITS} digits: cast it")
        return {"type": "decimal", "precision": kind.precision, "scale": kind.scale}
    return {"type": next(name for kinds, name, _ in _PLAIN if isinstance(one.dataType, kinds))}
