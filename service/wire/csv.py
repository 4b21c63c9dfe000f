"""Changes of one relation as CSV: a header row, comma, double quotes where needed, UTF-8.

An empty field is null in a nullable column, else the empty text; a quoted empty field is the empty text in a string column.
"""

from __future__ import annotations

import re

import pyarrow as pa
from pyarrow import csv

from service.wire.batch import Batch
from service.wire.columns import from_texts
from service.wire.errors import MalformedBody, check_utf8
from service.wire.json import Definitions
from service.wire.judge import Findings, assemble
from service.wire.room import CSV_WEIGHTS, UNBOUNDED, Room, take_text
from service.wire.schema import OP_COLUMN, RowRules
from service.wire.table import judge_table, refuse_twice


def decode_csv(body: bytes, relation: str, definitions: Definitions, room: Room = UNBOUNDED) -> Batch:
    """One relation's changes as text/csv. Too many or too few fields in a row make a malformed body."""
    rules = definitions(relation).rules
    take_text(body, CSV_WEIGHTS, room)
    table = _read(body, rules)
    room.check_rows(table.num_rows)

    def convert(ordinal: int, texts: pa.Array, findings: Findings) -> pa.Array:
        return from_texts(rules, ordinal, texts, findings)

    return assemble(table.num_rows, 0, [judge_table(rules, relation, table, 0, convert, room)])


def _read(body: bytes, rules: RowRules) -> pa.RecordBatch:
    """All fields as text."""
    if not body.endswith(b"\n"):
        body += b"\n"
    if body.isspace():
        raise MalformedBody("the body has no header row")
    if body.count(b'"') % 2:
        line = body.count(b"\n", 0, body.rindex(b'"')) + 1
        raise MalformedBody(f"the double quote in line {line} is not closed", line)
    empty_texts = [column.name for column in rules.columns if column.type == "string" and not column.nullable]
    try:
        table = csv.read_csv(
            pa.BufferReader(body),
            # One block: a row is never split, and its number in an error is the one in the body.
            csv.ReadOptions(use_threads=False, block_size=len(body) + 1),
            csv.ParseOptions(newlines_in_values=True),
            csv.ConvertOptions(
                column_types={name: pa.utf8() for name in (*rules.names, OP_COLUMN)},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        names: list[str] = table.column_names
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        check_utf8(body)
        row = re.search(r"Row #([0-9]+)", str(error))
        raise MalformedBody(f"the body is not CSV: {error}", int(row[1]) if row else None) from None
    refuse_twice(names, 1)
    columns = [column.combine_chunks() for column in table.columns]
    for at, name in enumerate(names):
        if name in empty_texts:
            columns[at] = columns[at].fill_null("")
    return pa.RecordBatch.from_arrays(columns, names=names)
