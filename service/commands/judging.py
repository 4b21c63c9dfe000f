"""Checks files before they are loaded, by the rules of the service (`service.wire`), and reports rejected rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from livejoin.arrow import ARROW
from livejoin.files import Body, File, csv_header
from service.terminal import Columns, Failure
from service.wire.batch import Batch, batch_to_arrow
from service.wire.decode import decode_relation_changes
from service.wire.errors import MalformedBody
from service.wire.schema import OP_COLUMN, RelationDefinition

SHOWN = 20  # rejected rows shown

Progress = Callable[[int, int], None]  # called with the position in the file, and the number of rows so far


class Rejected(NamedTuple):
    file: str
    line: int
    column: str | None
    reason: str


class Rejections:
    """The rejected rows so far: all are counted, the first are kept; for an unknown column, only the first row of each file."""

    def __init__(self, definition: RelationDefinition) -> None:
        self._known = {column.name for column in definition.columns}
        self._unknown: set[tuple[str, str]] = set()
        self._kept: list[Rejected] = []
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
            self._kept.append(Rejected(file.path.name, line, column, reason))

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


def judge_file(relation: str, definition: RelationDefinition, file: File, schema: pa.Schema, found: Rejections, told: Progress) -> None:
    """Add the rows that the service would reject to `found`. Raises Failure for a file that it would reject as a whole."""
    refuse_unknown_columns(relation, definition, file)
    rows = 0
    for body in file.bodies(schema):
        batch = _decoded(relation, definition, file, body, rows)
        found.add(file, body, batch.errors, batch.error_count)
        found.good += batch.sent - batch.error_count
        found.unclear += batch.unclear
        rows += batch.sent
        told(body.done, rows)


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


def refuse_unknown_columns(relation: str, definition: RelationDefinition, file: File) -> None:
    """Raise Failure for a file whose header or schema has a column that the relation lacks. JSON lines have neither."""
    if file.kind == "jsonl":
        return
    known = [column.name for column in definition.columns]
    names = csv_header(file.path) if file.kind == "csv" else file.names()
    for name in names:
        if name not in known and name != OP_COLUMN:
            raise Failure(
                f"{file.path}: {relation} has no column {name!r}, only {', '.join(known)}: remove it from the file, or extend the relation"
            )
