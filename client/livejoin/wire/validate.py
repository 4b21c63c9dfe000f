"""Validation of rows: from columns in canonical types to valid changes and reasons for the invalid ones.

All sources (JSON, CSV, Arrow, Debezium) convert their rows to columns for this module, so there is one set of rules. A check is a mask over
the rows; reasons are computed only for the rows that are reported. A row is reported once, with its first error: unknown columns, then
column by column, then interval by interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from livejoin.wire.batch import DELETE, MAX_ERRORS, TRUNCATE, UPSERT, Batch, Changes, RowBlock
from livejoin.wire.errors import RowError, cut
from livejoin.wire.grammar import INT64_MAX, INT64_MIN, NOT_FINITE, shown
from livejoin.wire.kinds import SENT_TYPES, ByKind, sent
from livejoin.wire.rows import writer
from livejoin.wire.schema import Interval, RowRules

Mask = npt.NDArray[np.bool_]
Reason = Callable[[int], str]
Blamed = str | Callable[[int], str] | None  # the column of a check, or that of each row

_FAR = 2**62  # safely within the limits of the encoding
_PHYSICAL: ByKind[type[np.generic]] = ByKind(
    {"int64": np.int64, "timestamp": np.int64, "date": np.int32, "float64": np.float64}, lambda precision, scale: np.int64
)


class RequiredColumns:
    """The columns that must be present in each row, by its op. None stands for all rows."""

    def __init__(self, ops: npt.NDArray[np.uint8]) -> None:
        self.whole: Mask | None = None  # inserts and upserts: all columns are read
        self.keyed: Mask | None = None  # all except truncates: key columns are read
        if len(ops) and ops.max() > UPSERT:
            self.whole = ops <= UPSERT
            if (ops == TRUNCATE).any():
                self.keyed = ops != TRUNCATE

    def read(self, is_key: bool) -> Mask | None:
        return self.keyed if is_key else self.whole


class Findings:
    """The errors found so far."""

    def __init__(self) -> None:
        self.checks: list[tuple[int, Mask, Blamed, Reason]] = []
        self.unclear = 0  # local times that do not exist, or exist twice

    def add(self, rank: int, mask: Mask, column: Blamed, reason: Reason) -> None:
        self.checks.append((rank, mask, column, reason))

    def bad_rows(self, length: int) -> Mask:
        bad = np.zeros(length, np.bool_)
        for _, mask, _, _ in self.checks:
            bad |= mask
        return bad

    def bad_columns(self, ordinals: Sequence[int], length: int) -> Mask:
        """Return the rows with an error in one of these columns."""
        bad = np.zeros(length, np.bool_)
        for rank, mask, _, _ in self.checks:
            if rank in ordinals:
                bad |= mask
        return bad

    def errors(self, bad: Mask, index: npt.NDArray[np.int64]) -> list[RowError]:
        """Return the first 100 bad rows, each with its first error. The sort is stable: within a column, the earlier check comes first."""
        ordered = sorted(self.checks, key=lambda check: check[0])
        errors = []
        for row in np.flatnonzero(bad)[:MAX_ERRORS].tolist():
            _, _, column, reason = next(check for check in ordered if check[1][row])
            blamed = column(row) if callable(column) else column
            errors.append(RowError(int(index[row]), blamed and cut(blamed), reason(row)))
        return errors


class ValidatedRows(NamedTuple):
    changes: Changes
    errors: list[RowError]
    error_count: int
    bad_keys: tuple[pa.RecordBatch, ...] = ()  # of the bad rows with readable keys
    unclear: int = 0  # see `Findings`


def validate(
    rules: RowRules,
    relation: str,
    ops: npt.NDArray[np.uint8],
    index: npt.NDArray[np.int64],
    columns: Sequence[pa.Array],
    findings: Findings,
    absent: Callable[[int, str], bool],
) -> ValidatedRows:
    """Check `columns` (one per column of the relation, canonical, null where a row does not read it) and separate good rows from bad ones.

    `findings` has the errors from reading the values; `absent(row, column)` distinguishes a missing value from a null.
    """
    arrays = list(columns)
    if len(ops):
        checked = RequiredColumns(ops)
        for ordinal in range(len(arrays)):
            _check_null(rules, ordinal, arrays[ordinal], checked, findings, absent)
        for ordinal in rules.finite:
            arrays[ordinal] = _check_finite(rules, ordinal, arrays[ordinal], findings)
        for rank, (name, start, end, interval) in enumerate(rules.intervals, len(arrays)):
            _check_interval(rules, rank, name, (start, end), interval, arrays, checked, findings)
    rows = pa.RecordBatch.from_arrays(arrays, schema=rules.schema)
    if not findings.checks:
        return ValidatedRows(Changes(relation, rules.definition, ops, RowBlock(rows), index), [], 0, unclear=findings.unclear)
    bad = findings.bad_rows(len(ops))
    good = ~bad
    changes = Changes(relation, rules.definition, ops[good], RowBlock(rows.filter(pa.array(good))), index[good])
    keys = rows.select(rules.key).filter(pa.array(bad & ~findings.bad_columns(rules.key_ordinals, len(ops))))
    return ValidatedRows(changes, findings.errors(bad, index), int(bad.sum()), (keys,), findings.unclear)


def are_surely_valid(rules: RowRules, ops: Sequence[int], rows: Sequence[Sequence[Any]]) -> bool:
    """Return whether a few rows of physical Python values are certainly valid; if not, `validate` validates them.

    Exists because the overhead of NumPy exceeds the whole cost for a single row.
    """
    for op, row in zip(ops, rows, strict=True):
        if op <= UPSERT:
            if not _is_surely_valid(rules, row):
                return False
        elif rules.finite:
            return False
        elif op == DELETE and any(row[ordinal] is None for ordinal in rules.key_ordinals):
            return False
    return True


def _is_surely_valid(rules: RowRules, row: Sequence[Any]) -> bool:
    """The same for one row that is inserted."""
    if rules.finite:
        return False
    for ordinal in rules.required:
        if row[ordinal] is None:
            return False
    for start, end, least in rules.lengths:
        first, last = row[start], row[end]
        if (first is not None and abs(first) > _FAR) or (last is not None and abs(last) > _FAR):
            return False
        if first is not None and last is not None and last - first < least:
            return False
    return True


def _check_null(
    rules: RowRules, ordinal: int, array: pa.Array, checked: RequiredColumns, findings: Findings, absent: Callable[[int, str], bool]
) -> None:
    column = rules.columns[ordinal]
    if column.nullable or array.null_count == 0:
        return
    mask = _nulls(array)
    read = checked.read(rules.is_key[ordinal])
    if read is not None:
        mask &= read
    if not mask.any():
        return
    why = "null in a key column" if rules.is_key[ordinal] else "null, but the column is not nullable"

    def reason(row: int) -> str:
        return "missing" if absent(row, column.name) else why

    findings.add(ordinal, mask, column.name, reason)


def _check_finite(rules: RowRules, ordinal: int, array: pa.Array, findings: Findings) -> pa.Array:
    """Reject NaN and infinity in keys and endpoints. In a key, -0.0 becomes 0.0: equal keys must have equal bits."""
    values = values_of(array, "float64")
    mask = ~np.isfinite(values)
    if array.null_count:
        mask &= ~_nulls(array)
    if mask.any():
        what = "a key" if rules.is_key[ordinal] else "an interval (write null for an unbounded side)"
        findings.add(ordinal, mask, rules.names[ordinal], lambda row: f"{_name_of(float(values[row]))} is not allowed in {what}")
    if not rules.is_key[ordinal] or not ((values == 0) & np.signbit(values)).any():
        return array
    return pa.array(values + 0.0, mask=_nulls(array))


def _name_of(value: float) -> str:
    """Return the JSON name of a number that is not finite."""
    return next((name for name, number in NOT_FINITE.items() if number == value), "NaN")


def _check_interval(
    rules: RowRules,
    rank: int,
    name: str,
    ordinals: tuple[int, int],
    interval: Interval,
    arrays: Sequence[pa.Array],
    checked: RequiredColumns,
    findings: Findings,
) -> None:
    """Check that no endpoint is at the limits of the encoding, and that at least one value of the type lies between them; null is
    unbounded."""
    start, end = (arrays[ordinal] for ordinal in ordinals)
    kind = rules.columns[ordinals[0]].kind
    starts, ends = values_of(start, kind), values_of(end, kind)
    if kind == "float64":
        with np.errstate(invalid="ignore", over="ignore"):
            first = np.nextafter(starts, np.inf) if interval.start_open else starts
            last = np.nextafter(ends, -np.inf) if interval.end_open else ends
            empty = first > last
    else:
        if kind != "date":
            _check_edges(rules, ordinals, (starts, ends), interval, (start, end), checked, findings)
        starts, ends = starts.astype(np.int64, copy=False), ends.astype(np.int64, copy=False)
        empty = starts > ends
        opens = interval.start_open + interval.end_open
        if opens:
            # start + opens > end, without overflow: if start <= end, the distance fits into 64 unsigned bits.
            empty |= (ends.view(np.uint64) - starts.view(np.uint64)) < opens
    for array in (start, end):
        if array.null_count:
            empty &= ~_nulls(array)
    if checked.whole is not None:
        empty &= checked.whole
    if not empty.any():
        return

    def reason(row: int) -> str:
        left, right = (value_text(sent(array.slice(row, 1), SENT_TYPES[kind])) for array in (start, end))
        return f"the interval {name} is empty: {interval.bounds[0]}{left}, {right}{interval.bounds[1]}"

    findings.add(rank, empty, rules.names[ordinals[1]], reason)


def _check_edges(
    rules: RowRules,
    ordinals: tuple[int, int],
    values: tuple[npt.NDArray[Any], npt.NDArray[Any]],
    interval: Interval,
    arrays: tuple[pa.Array, pa.Array],
    checked: RequiredColumns,
    findings: Findings,
) -> None:
    """Reject endpoints at the limits: as a closed endpoint, a value must lie strictly between the int64 extremes, which stand for the
    infinities."""
    opens = (interval.start_open, interval.end_open)
    lowest = (INT64_MIN if opens[0] else INT64_MIN + 1, INT64_MIN + 2 if opens[1] else INT64_MIN + 1)
    highest = (INT64_MAX - 2 if opens[0] else INT64_MAX - 1, INT64_MAX if opens[1] else INT64_MAX - 1)
    for ordinal, numbers, low, high, array in zip(ordinals, values, lowest, highest, arrays, strict=True):
        if array.null_count == 0 and numbers.min() >= low and numbers.max() <= high:
            continue
        mask = (numbers < low) | (numbers > high)
        if array.null_count:
            mask &= ~_nulls(array)
        if checked.whole is not None:
            mask &= checked.whole
        if mask.any():
            findings.add(ordinal, mask, rules.names[ordinal], _edge_reason(numbers))


def _edge_reason(numbers: npt.NDArray[Any]) -> Reason:
    return lambda row: f"{int(numbers[row])} is too close to the 64-bit limits for an endpoint (write null for an unbounded side)"


def _nulls(array: pa.Array) -> Mask:
    mask: Mask = array.is_null().to_numpy(zero_copy_only=False)
    return mask


def values_of(array: pa.Array, kind: str) -> npt.NDArray[Any]:
    """Return the numbers of a canonical fixed-width column, without a copy; those of nulls are meaningless."""
    if array.null_count == len(array):
        return np.zeros(len(array), _PHYSICAL[kind])
    return np.frombuffer(array.buffers()[1], _PHYSICAL[kind])[array.offset : array.offset + len(array)]


def value_text(one: pa.Array) -> str:
    """Return the value of a column with one row as shown in messages: as it would be sent."""
    write = writer(one.type)
    return str(write(one)[0]) if write else shown(one[0].as_py())


def assemble(sent: int, ignored: int, validated: Sequence[ValidatedRows], refused: Sequence[RowError] = (), **fields: Any) -> Batch:
    """Assemble a batch from its relations and the changes that were `refused` before their columns were checked."""
    changes = [one.changes for one in validated if len(one.changes.ops)]
    count = len(refused) + sum(one.error_count for one in validated)
    errors: list[RowError] = []
    if count:
        errors = sorted([*refused, *(error for one in validated for error in one.errors)], key=lambda error: error.index)[:MAX_ERRORS]
    bad_keys = [keys for one in validated for keys in one.bad_keys] if count else []
    return Batch(changes, sent, ignored, errors, count, bad_keys=bad_keys, unclear=sum(one.unclear for one in validated), **fields)
