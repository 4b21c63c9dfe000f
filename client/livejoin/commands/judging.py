"""Checks files before they are loaded, by the rules of the service (`livejoin.wire`), and reports rejected rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from livejoin.arrow import ARROW
from livejoin.files import Body, File, csv_header
from livejoin.terminal import Columns, Failure
from livejoin.wire.batch import UPSERT, Batch, batch_to_arrow
from livejoin.wire.decode import decode_relation_changes
from livejoin.wire.errors import MalformedBody
from livejoin.wire.schema import OP_COLUMN, RelationDefinition
from livejoin.wire.table import first_twice

SHOWN = 20  # rejected rows, or lines of repeated keys, shown

Progress = Callable[[int, int], None]  # called with the position in the file, and the number of rows so far


class RejectedRow(NamedTuple):
    file: str
    line: int
    column: str | None
    reason: str


class Rejections:
    """The rejected rows so far: all are counted, the first are kept; for an unknown column, only the first row of each file."""

    def __init__(self, definition: RelationDefinition) -> None:
        self._known = {column.name for column in definition.columns}
        self._unknown: set[tuple[str, str]] = set()
        self._kept: list[RejectedRow] = []
        self.count = self.good = self.unclear = 0

    def add(self, file: File, body: Body, errors: Iterable[tuple[int, str | None, str]], count: int) -> None:
        """Add `count` rejected rows of a body, the first of them with index, column and reason."""
        self.count += count
        listed = []
        for error in errors:
            column = error[1]
            if column is not None and column not in self._known and column != OP_COLUMN:
                if (file.path.name, column) in self._unknown:
                    continue
                self._unknown.add((file.path.name, column))
            listed.append(error)
        listed = listed[: max(0, SHOWN - len(self._kept))]
        for (_, column, reason), line in zip(listed, body.lines([index for index, _, _ in listed]), strict=True):
            self._kept.append(RejectedRow(file.path.name, line, column, reason))

    @property
    def were(self) -> str:
        return f"{self.count:,} row{' was' if self.count == 1 else 's were'} rejected"

    def show(self) -> None:
        """Print the rows to standard error."""
        columns = Columns(["file", "line", "column", "reason"], widest=200)
        rows = [one._asdict() for one in self._kept]
        columns.fit(rows)
        more = [f"… and {self.count - len(rows):,} more"] if self.count > len(rows) else []
        print("\n".join([*columns.head(), *map(columns.line, rows), *more]), file=sys.stderr)


class Repeats:
    """Finds the rows of a load that a later one replaces, because it has the same key. A log, in which some row has another `_op` than
    upsert, has none: its rows are changes.

    Keys are compared by hashes of 64 bits, 8 bytes a row, which are unique for a single column of numbers.
    """

    def __init__(self, relation: str, definition: RelationDefinition, schema: pa.Schema) -> None:
        self._relation, self._definition, self._schema = relation, definition, schema
        self._hashes: list[npt.NDArray[np.uint64]] = []  # of the good rows of each body
        self._is_log = False

    def add(self, batch: Batch) -> None:
        self._is_log |= any(bool((changes.ops != UPSERT).any()) for changes in batch.changes)
        if self._is_log:
            self._hashes.clear()
        else:
            hashes = [_hashes(changes.rows.arrow.select(self._definition.key)) for changes in batch.changes]
            self._hashes.append(hashes[0] if hashes else np.zeros(0, np.uint64))

    def emitted(self, files: list[File]) -> tuple[int, str]:
        """Return the number of rows that are replaced, and the lines of the first ones."""
        if not self._hashes:
            return 0, ""
        hashes = np.concatenate(self._hashes)
        order = np.argsort(hashes, kind="stable")
        lost = np.sort(order[:-1][hashes[order[:-1]] == hashes[order[1:]]])
        return len(lost), self._positions(files, lost[:SHOWN], len(lost)) if len(lost) else ""

    def _positions(self, files: list[File], lost: npt.NDArray[np.int64], count: int) -> str:
        """Return where rows are, given by their numbers among the good ones."""
        sizes = iter(self._hashes)
        positions, start = [], 0
        for file in files:
            lines: list[int] = []
            for body in file.bodies(self._schema):
                end = start + len(next(sizes))
                if len(own := lost[(lost >= start) & (lost < end)]):
                    index = _decoded(self._relation, self._definition, file, body, 0).changes[0].index
                    lines += body.lines(index[own - start].tolist())
                start = end
                if start > lost[-1]:
                    break
            if lines:
                name = f"{file.path.name} " if len(files) > 1 else ""
                positions.append(f"{name}{file.unit}{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))}")
            if start > lost[-1]:
                break
        return "; ".join(positions) + (f" and {count - len(lost):,} more" if count > len(lost) else "")


def _hashes(keys: pa.RecordBatch) -> npt.NDArray[np.uint64]:
    hashes = np.zeros(keys.num_rows, np.uint64)
    for column in keys.columns:
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            coded = column.dictionary_encode()
            own = np.array(list(map(hash, coded.dictionary.to_pylist())), np.int64)[coded.indices.to_numpy()]
        elif pa.types.is_floating(column.type):
            own = column.to_numpy().view(np.int64)
        else:  # Arrow casts a date only to 32 bits
            own = column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64()).to_numpy().astype(np.int64)
        hashes = (hashes ^ own.view(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):  # the end of SplitMix64, a bijection
            hashes = (hashes ^ (hashes >> np.uint64(shift))) * np.uint64(factor)
    return hashes


def validate_file(
    relation: str, definition: RelationDefinition, file: File, schema: pa.Schema, found: Rejections, repeats: Repeats, emitted: Progress
) -> None:
    """Add the rows that the service would reject to `found`, and the keys of the others to `repeats`. Raises Failure for a file that it
    would reject as a whole."""
    refuse_unknown_columns(relation, definition, file)
    rows = 0
    for body in file.bodies(schema):
        batch = _decoded(relation, definition, file, body, rows)
        found.add(file, body, batch.errors, batch.error_count)
        found.good += batch.sent - batch.error_count
        found.unclear += batch.unclear
        repeats.add(batch)
        rows += batch.sent
        emitted(body.done, rows)


def converted(relation: str, definition: RelationDefinition, file: File, schema: pa.Schema, rejected: Rejections) -> Iterator[Body]:
    """Yield the good rows of a file as Arrow, read by `definition`; the others are added to `rejected`."""
    rows = 0
    for body in file.bodies(schema):
        batch = _decoded(relation, definition, file, body, rows)
        rows += batch.sent
        rejected.add(file, body, batch.errors, batch.error_count)
        if batch.changes:
            index = batch.changes[0].index

            def lines(indexes: list[int], body: Body = body, index: npt.NDArray[np.int64] = index) -> list[int]:
                return body.lines([int(index[row]) for row in indexes])

            yield Body(ARROW, batch_to_arrow(batch), body.first, body.done, lines)


def _decoded(relation: str, definition: RelationDefinition, file: File, body: Body, rows: int) -> Batch:
    """Decode a body. `rows`: the number of the file's rows before it. Raises Failure."""
    try:
        return decode_relation_changes(body.media_type, body.content, relation, lambda _: definition)
    except MalformedBody as error:
        part = f", from {file.unit} {body.first} on" if rows else ""
        raise Failure(f"{file.path}{part}: {error.detail}") from error


def names_of(file: File) -> list[str]:
    """Return the columns in the header or schema of a file; none for JSON lines, which have neither. Raises Failure for one that appears
    twice."""
    if file.kind == "jsonl":
        return []
    names = csv_header(file.path) if file.kind == "csv" else file.names()
    if (twice := first_twice(names)) is not None:
        raise Failure(f"{file.path}: the column {twice!r} appears twice: rename or remove one of them")
    return names


def refuse_unknown_columns(relation: str, definition: RelationDefinition, file: File) -> None:
    """Raise Failure for a file whose header or schema has a column that the relation lacks."""
    known = [column.name for column in definition.columns]
    for name in names_of(file):
        if name not in known and name != OP_COLUMN:
            raise Failure(
                f"{file.path}: {relation} has no column {name!r}, only {', '.join(known)}: remove it from the file, or extend the relation"
            )
