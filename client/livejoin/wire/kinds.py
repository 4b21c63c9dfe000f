"""The kind of a column's values as text: its type, and for a decimal its precision and scale: `decimal(12,2)`.

A decimal is stored as its unscaled integer (12.50 with scale 2 as 1250), which is compared, joined and encoded exactly; it has a decimal
point only when it is received or sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

import pyarrow as pa

T = TypeVar("T")

MOST_DIGITS = 18  # any number of so many digits fits into an int64
_DECIMAL = re.compile(r"decimal\(([0-9]+),([0-9]+)\)")


_ZONED = "timestamp in "  # and a zone: how the values are read, not what they are


def zoned_kind(zone: str) -> str:
    """Return the kind of timestamps whose values without an offset are local times; used only in tables of readers."""
    return _ZONED + zone


def decimal_kind(precision: int, scale: int) -> str:
    return f"decimal({precision},{scale})"


def digits_of(kind: str) -> tuple[int, int] | None:
    """Return the precision and scale of a decimal; None for any other kind."""
    found = _DECIMAL.fullmatch(kind)
    return (int(found[1]), int(found[2])) if found else None


def is_wide(kind: str) -> bool:
    """Return whether it is a decimal of more digits than a column of a relation may have, such as a sum's, which has one form alone."""
    return (digits_of(kind) or (0, 0))[0] > MOST_DIGITS


class ByKind(dict[str, T]):
    """A value for each kind; `decimal` creates it for decimals of a precision and scale, `zoned` for timestamps with a zone."""

    def __init__(self, plain: Mapping[str, T], decimal: Callable[[int, int], T], zoned: Callable[[str], T] | None = None) -> None:
        super().__init__(plain)
        self._decimal = decimal
        self._zoned = zoned

    def __missing__(self, kind: str) -> T:
        if (digits := digits_of(kind)) is not None:
            made = self[kind] = self._decimal(*digits)
        elif self._zoned is not None and kind.startswith(_ZONED):
            made = self[kind] = self._zoned(kind.removeprefix(_ZONED))
        else:
            raise KeyError(kind)
        return made


KEPT_TYPES: ByKind[pa.DataType] = ByKind(
    {
        "int64": pa.int64(),
        "float64": pa.float64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "date": pa.date32(),
        "string": pa.utf8(),
        "bool": pa.bool_(),
        "uuid": pa.utf8(),
        "time": pa.time64("us"),
        "json": pa.utf8(),
        "bytes": pa.binary(),
    },
    lambda precision, scale: pa.int64(),
)
"""The Arrow types of columns as they are stored."""

SENT_TYPES: ByKind[pa.DataType] = ByKind(KEPT_TYPES, pa.decimal128)
"""The Arrow types of columns as they are received or sent."""


def kept(array: pa.Array) -> pa.Array:
    """Convert a received column of one of `SENT_TYPES` to the stored form."""
    return array.view(pa.decimal128(38, 0)).cast(pa.int64()) if pa.types.is_decimal(array.type) else array


def sent(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Convert a stored column to the form that is sent."""
    return array.cast(pa.decimal128(19, 0)).view(wanted) if pa.types.is_decimal(wanted) and pa.types.is_integer(array.type) else array


def sent_batch(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert stored rows to the form that is sent, with this schema."""
    if rows.schema.equals(schema):
        return rows
    columns = [sent(column, field.type) for column, field in zip(rows.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
