"""Changes as a Parquet file. The decoded size of its pages is computed before a page is decoded (`parquet/pages`)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from livejoin.wire.arrow import known_columns, one_batch, validate_record_batch
from livejoin.wire.batch import Batch
from livejoin.wire.budget import UNBOUNDED, Budget
from livejoin.wire.errors import MalformedBody
from livejoin.wire.json import Definitions
from livejoin.wire.parquet.pages import look_at_pages
from livejoin.wire.schema import RowRules
from livejoin.wire.table import is_text
from livejoin.wire.validate import assemble

_FOOTER = 256  # bytes of objects for each byte of a footer, at most: for a column chunk of three bytes
_WIDTH = 12  # bytes of a fixed-width value, or of an index and its entry
_PIECE = 64 << 20  # bytes of rows whose texts share prefixes


def decode_parquet(body: bytes, relation: str, definitions: Definitions, room: Budget = UNBOUNDED, plain: bool = False) -> Batch:
    """Decode one relation's changes as a Parquet file; `plain`: as in `validate_table`."""
    rules = definitions(relation).rules
    try:
        batch = _read(body, rules, room)
    except UnicodeDecodeError:
        raise MalformedBody("the body is not Parquet: a column's name is not UTF-8") from None
    except (pa.ArrowException, OSError) as error:
        raise MalformedBody(f"the body is not Parquet: {error}") from None
    return assemble(batch.num_rows, 0, [validate_record_batch(rules, relation, batch, 0, room, plain)])


def _read(body: bytes, rules: RowRules, room: Budget) -> pa.RecordBatch:
    """Read the columns of the relation, and `_op`; other columns become nulls: their names suffice to reject the rows."""
    if len(body) >= 12:
        room.take(_FOOTER * min(len(body), int.from_bytes(body[-8:-4], "little")))
    file = pq.ParquetFile(pa.BufferReader(body), pre_buffer=False)
    groups = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
    if min(groups, default=0) < 0:
        raise MalformedBody("the body is not Parquet: a row group has a negative number of rows")
    rows = sum(groups)
    room.check_rows(max(rows, file.metadata.num_rows))
    schema = file.schema_arrow
    wanted, stranger = known_columns(rules, schema)
    if not wanted:
        return one_batch(pa.table({"": pa.nulls(rows)}).select([]), stranger)
    room.take(_WIDTH * rows * len(wanted))
    pages = look_at_pages(body, file.metadata.schema, set(wanted), room)
    if pages.share:
        pieces = []
        for piece in file.iter_batches(max(1, _PIECE // max(pages.largest, 1)), columns=wanted, use_threads=False):
            room.take(piece.nbytes)
            pieces.append(piece)
        table = pa.Table.from_batches(pieces, None if pieces else pa.schema([schema.field(name) for name in wanted]))
    else:
        texts = [name for name in pages.dictionaries if is_text(schema.field(name).type)]
        source = pa.BufferReader(body)
        table = pq.ParquetFile(source, metadata=file.metadata, read_dictionary=texts, pre_buffer=False).read(columns=wanted)
    table.validate(full=True)
    return one_batch(table, stranger)
