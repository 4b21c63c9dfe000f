"""A Spark frame as a relation of cells: its definition, and the hashes that Spark computes of its rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
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
LOWEST, HIGHEST = -(2**63), 2**63 - 1


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


def require_kept(columns: Iterable[T.StructField]) -> None:
    """Raises TypeError (a column of a type that cells do not support, such as a text with a collation)."""
    for one in columns:
        _kind(one)


def is_kept(frame: DataFrame) -> bool:
    """Whether cells support the types of all columns."""
    try:
        require_kept(frame.schema.fields)
    except TypeError:
        return False
    return True


def checked(frame: DataFrame, interval: tuple[str, str, str], said: tuple[str, str]) -> DataFrame:
    """The same rows. A value that cells do not support as an endpoint (NaN, an infinity, next to the limits of int64) is an error of the
    job, which names the columns as in `said`."""
    *ends, bounds = interval
    opens = opens_of(bounds)
    if is_continuous(frame, interval):
        bad = [F.isnan(F.col(name)) | (F.abs(F.col(name)) == F.lit(float("inf"))) for name in ends]
    else:
        low = LOWEST + (not opens[0]), LOWEST + 1 + opens[1]
        high = HIGHEST - 1 - opens[0], HIGHEST - (not opens[1])
        bad = [~_whole(frame, name).between(*between) for name, between in zip(ends, zip(low, high, strict=True), strict=True)]
    kept = {}
    for name, is_bad, called in zip(ends, bad, said, strict=True):
        reason = F.format_string(f"{called.replace('%', '%%')}: %s cannot be an endpoint (write null for an unbounded side)", F.col(name))
        kept[name] = F.when(is_bad, F.raise_error(reason)).otherwise(F.col(name))
    return frame.withColumns(kept)


def is_continuous(frame: DataFrame, interval: tuple[str, str, str]) -> bool:
    return isinstance(frame.schema[interval[0]].dataType, (T.FloatType, T.DoubleType))


def closed(frame: DataFrame, interval: tuple[str, str, str]) -> tuple[Column, Column]:
    """The first and the last value of each interval as int64, or the ends of an interval of floats; null if unbounded."""
    start, end, bounds = interval
    if is_continuous(frame, interval):
        return F.col(start), F.col(end)
    opens = opens_of(bounds)
    return _whole(frame, start) + F.lit(int(opens[0])), _whole(frame, end) - F.lit(int(opens[1]))


def opens_of(bounds: str) -> tuple[bool, bool]:
    return bounds[0] == "(", bounds[1] == ")"


def _whole(frame: DataFrame, name: str) -> Column:
    """The values of a column of integers, decimals, dates or timestamps as int64."""
    kind = frame.schema[name].dataType
    if isinstance(kind, T.TimestampType):
        return F.unix_micros(F.col(name))
    if isinstance(kind, T.DecimalType):
        return (F.col(name) * F.lit(Decimal(10**kind.scale))).cast("long")
    return (F.unix_date(F.col(name)) if isinstance(kind, T.DateType) else F.col(name)).cast("long")


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
