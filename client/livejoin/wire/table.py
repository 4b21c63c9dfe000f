"""Changes that arrive as a table (CSV, Arrow, Parquet): ops from a text column `_op`, the rest validated column by column."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from livejoin.wire.batch import OP_DICTIONARY, UPSERT
from livejoin.wire.budget import Budget, is_view, repeated
from livejoin.wire.errors import MalformedBody
from livejoin.wire.grammar import shown
from livejoin.wire.json import NO_OPS
from livejoin.wire.schema import OP_COLUMN, RowRules
from livejoin.wire.validate import Findings, Mask, RequiredColumns, ValidatedRows, validate
from livejoin.wire.wording import instead

# (ordinal, the column as sent, with null where it is not read, findings) → the canonical column
Convert = Callable[[int, pa.Array, Findings], pa.Array]


def validate_table(
    rules: RowRules, relation: str, table: pa.RecordBatch, first: int, convert: Convert, room: Budget, plain: bool = False
) -> ValidatedRows:
    """Judge the rows of one table; `first` is the index of its first row in the batch. Vectorised: no Python per row.

    `plain`: a column `_op` makes a malformed body.

    A column that the relation lacks makes every row bad, except truncates. Duplicate columns make a malformed body.
    """
    names = table.schema.names
    refuse_twice(names)
    if plain and OP_COLUMN in names:
        raise MalformedBody(NO_OPS)
    room.take(rules.width * table.num_rows)
    findings = Findings()
    ops = _ops(table, findings, room)
    checked = RequiredColumns(ops)
    stranger = next((name for name in names if name not in rules.name_set and name != OP_COLUMN), None)
    if stranger is not None and table.num_rows:
        keyed = np.ones(len(ops), np.bool_) if checked.keyed is None else checked.keyed
        reason = f"{relation} has no such column{instead(stranger, rules.names)}"
        findings.add(-1, keyed, stranger, lambda row: reason)
    columns = []
    for ordinal, name in enumerate(rules.names):
        if name in names:
            array = table.column(name)
            room.take(repeated(array))
            read = checked.read(rules.is_key[ordinal])
            columns.append(convert(ordinal, array if read is None else _only(array, read), findings))
        else:
            columns.append(pa.nulls(table.num_rows, rules.types[ordinal]))
    index = np.arange(first, first + table.num_rows, dtype=np.int64)
    return validate(rules, relation, ops, index, columns, findings, lambda row, column: column not in names)


def refuse_twice(names: Iterable[str], line: int | None = None) -> None:
    """Raise MalformedBody for a column that appears twice."""
    if (twice := first_twice(names)) is not None:
        raise MalformedBody(f"the column {twice!r} appears twice", line)


def _only(array: pa.Array, read: Mask) -> pa.Array:
    """Return the column with null where it is not read."""
    if is_view(array.type):
        array = array.cast(pa.utf8() if pa.types.is_string_view(array.type) else pa.binary())  # if_else does not support views
    return pc.if_else(pa.array(read), array, None)


def _ops(table: pa.RecordBatch, findings: Findings, room: Budget) -> npt.NDArray[np.uint8]:
    """Return the ops of the rows; a null is an upsert. An unknown one is an error that precedes all others, and counts as an upsert."""
    if OP_COLUMN not in table.schema.names:
        return np.full(table.num_rows, UPSERT, np.uint8)
    given = table.column(OP_COLUMN)
    if pa.types.is_dictionary(given.type) and not given.null_count and given.dictionary.equals(OP_DICTIONARY):
        ours: npt.NDArray[np.uint8] = given.indices.to_numpy(zero_copy_only=False).astype(np.uint8)
        return ours
    room.take(repeated(given) if is_text(given.type) else 0)
    try:
        texts = given.cast(pa.utf8())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        texts = None
    if texts is None or not (pa.types.is_null(given.type) or is_text(given.type)):
        raise MalformedBody(f"the column {OP_COLUMN!r} is {given.type}, not text")
    codes: npt.NDArray[Any] = pc.fill_null(pc.index_in(texts, OP_DICTIONARY), -1).to_numpy(zero_copy_only=False)
    unknown = codes < 0
    if not unknown.any():
        return codes.astype(np.uint8)
    ops = np.where(unknown, UPSERT, codes).astype(np.uint8)
    unknown &= texts.is_valid().to_numpy(zero_copy_only=False)
    if unknown.any():
        findings.add(-2, unknown, OP_COLUMN, lambda row: f"got {shown(texts[row].as_py())}, expected insert, upsert, delete or truncate")
    return ops


def first_twice(names: Iterable[str]) -> str | None:
    """Return the first name that has appeared before."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def is_text(kind: pa.DataType) -> bool:
    """Return whether the type is text in any of Arrow's layouts, dictionaries included."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
