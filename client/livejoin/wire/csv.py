"""Changes of one relation as CSV: a header row, comma, double quotes where needed, UTF-8.

An empty field is null in a nullable column, otherwise the empty text; a quoted empty field is the empty text in a string column, and zero
bytes in a bytes column. Bytes are in base64, or in hexadecimal digits after `\\x`.
"""

from __future__ import annotations

import re
from csv import Error, reader
from io import StringIO

import pyarrow as pa
from pyarrow import csv

from livejoin.wire.batch import Batch
from livejoin.wire.budget import CSV_WEIGHTS, UNBOUNDED, Budget, take_text
from livejoin.wire.columns import from_texts
from livejoin.wire.errors import MalformedBody, check_utf8, cut
from livejoin.wire.json import Definitions
from livejoin.wire.schema import OP_COLUMN, RowRules
from livejoin.wire.table import refuse_twice, validate_table
from livejoin.wire.validate import Findings, assemble
from livejoin.wire.wording import instead

_HEADER = 1 << 20  # bytes: more than a thousand columns with long names require


def decode_csv(body: bytes, relation: str, definitions: Definitions, room: Budget = UNBOUNDED, plain: bool = False) -> Batch:
    """Decode one relation's changes as text/csv; `plain`: as in `validate_table`. Too many or too few fields in a row make a malformed
    body."""
    rules = definitions(relation).rules
    take_text(body, CSV_WEIGHTS, room)
    table = _read(body, rules)
    room.check_rows(table.num_rows)

    def convert(ordinal: int, texts: pa.Array, findings: Findings) -> pa.Array:
        return from_texts(rules, ordinal, texts, findings)

    return assemble(table.num_rows, 0, [validate_table(rules, relation, table, 0, convert, room, plain)])


def refuse_other_separators(names: list[str]) -> None:
    """Raise MalformedBody for a header row whose fields are not separated by commas."""
    if len(names) == 1 and (other := next((mark for mark in ";\t|" if mark in names[0]), None)):
        raise MalformedBody(f"the header row is one field, {cut(names[0])!r}: separate fields by commas, not by {other!r}", 1)


def _read(body: bytes, rules: RowRules) -> pa.RecordBatch:
    """Read the fields of the relation's columns, and of `_op`, as text; of other columns only the first, as nulls: its name suffices to
    reject the rows. Arrow takes 9 KB per column, however few bytes it has."""
    if not body.endswith(b"\n"):
        body += b"\n"
    if body.isspace():
        raise MalformedBody("the body has no header row")
    if body.count(b'"') % 2:
        line = body.count(b"\n", 0, body.rindex(b'"')) + 1
        raise MalformedBody(f"the double quote in line {line} is not closed", line)
    names = _header(body)
    refuse_twice(names, 1)
    known = [name for name in names if name in rules.name_set or name == OP_COLUMN]
    if not known:
        refuse_other_separators(names)
    try:
        table = csv.read_csv(
            pa.BufferReader(body),
            # A single block: a row is never split, and its number in an error is the one in the body.
            csv.ReadOptions(use_threads=False, block_size=len(body) + 1),
            csv.ParseOptions(newlines_in_values=True),
            csv.ConvertOptions(
                include_columns=known or names[:1],  # an empty list would include all
                column_types={name: pa.utf8() for name in known or names[:1]},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowException as error:
        check_utf8(body)
        row = re.search(r"Row #([0-9]+)", str(error))
        raise MalformedBody(f"the body is not CSV: {error}", int(row[1]) if row else None) from None
    columns = [column.combine_chunks() for column in table.columns] if known else []
    for at, name in enumerate(known):
        column = rules.columns[rules.ordinal[name]] if name != OP_COLUMN else None
        if column is not None and column.type in ("string", "bytes") and not column.nullable:
            columns[at] = columns[at].fill_null("")
    if (stranger := next((name for name in names if name not in known), None)) is not None:
        if not table.num_rows:
            reason = f"the only row would be the header row, but there is no column {cut(stranger)!r}{instead(stranger, rules.names)}"
            raise MalformedBody(reason, 1)
        return pa.RecordBatch.from_arrays([*columns, pa.nulls(table.num_rows)], names=[*known, stranger])
    return pa.RecordBatch.from_arrays(columns, names=known)


def _header(body: bytes) -> list[str]:
    """Read the names of the columns by Arrow's rules: a quote opens only at the start of a field, and empty lines are skipped."""
    text = StringIO(body[: _HEADER + 1].decode("utf-8-sig", "replace"), newline="")
    try:
        names = next((row for row in reader(text) if row), [])
    except Error as error:
        raise MalformedBody(f"the header row cannot be read: {error}", 1) from None
    if len(body) > _HEADER and not text.read(1):
        raise MalformedBody(f"the header row is longer than {_HEADER} bytes", 1)
    if any("\ufffd" in name for name in names):
        check_utf8(body)
    return names
