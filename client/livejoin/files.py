"""Files of rows, cut into bodies for POST: CSV and JSON lines as they stand, Parquet and Arrow as Arrow streams.

Text is sent to the service unchanged, so that only the service's rules apply. A body can map the
index of a rejected row back to its position in the file.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from livejoin.arrow import ARROW, stream_of
from livejoin.lines import JSONL
from livejoin.problems import BadFile

T = TypeVar("T")

CSV = "text/csv"
_BOM = b"\xef\xbb\xbf"
BODY = 8 * 2**20  # bytes of a body, about
ROWS = 65_536  # rows of an Arrow batch, at most
KINDS = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"} | dict.fromkeys(
    (".arrow", ".arrows", ".ipc", ".feather"), "arrow"
)


class Body(NamedTuple):
    """One body to post, which begins in line (or row) `first`. `done` of `File.size` is behind it; `lines` leads row indexes to lines
    (or row numbers)."""

    media_type: str
    content: bytes
    first: int
    done: int
    lines: Callable[[list[int]], list[int]]


class File(NamedTuple):
    """A file of rows by its kind. `unit` is what its rows are counted in: lines, or rows from 1."""

    path: Path
    kind: str
    size: int
    unit: str

    def bodies(self, cast: pa.Schema | None = None) -> Iterator[Body]:
        """The file in order. With `cast`, columns of Parquet and Arrow get the types that it names, but for times and UUIDs. Raises
        BadFile."""
        if self.kind == "csv":
            return _csv_bodies(self)
        if self.kind == "jsonl":
            return _jsonl_bodies(self)
        return _arrow_bodies(self, cast)

    def names(self) -> list[str]:
        """Parquet and Arrow: the columns."""
        if self.kind == "parquet":
            return list(_readable(self.path, lambda: pq.read_schema(self.path)).names)
        with self.path.open("rb") as raw:
            return list(_opened(self.path, raw).schema.names)

    def batches(self) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Parquet and Arrow: the batches, each with the bytes (or rows) of the file behind it."""
        return _parquet(self.path) if self.kind == "parquet" else _arrow(self.path)


def open_file(path: Path) -> File:
    """Raises BadFile when the name does not indicate the type, OSError when there is no such file."""
    packed = path.suffix == ".gz"
    kind = KINDS.get(path.with_suffix("").suffix if packed else path.suffix)
    if kind is None or (packed and kind not in ("csv", "jsonl")):
        endings = ", ".join([*KINDS, ".csv.gz", ".jsonl.gz"])
        raise BadFile(f"{path}: unknown file type: the name must end in one of {endings}")
    size = path.stat().st_size
    if kind == "parquet":
        size = _readable(path, lambda: pq.ParquetFile(path).metadata.num_rows)
    return File(path, kind, size, "line" if kind in ("csv", "jsonl") else "row")


class Text:
    """Lines of a plain or packed file, with how far the file itself has been read."""

    def __init__(self, path: Path) -> None:
        self._raw: IO[bytes] = path.open("rb")
        self._lines: Any = gzip.open(self._raw) if path.suffix == ".gz" else self._raw
        self.path = path

    def __enter__(self) -> Text:
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()

    def line(self) -> bytes:
        return _readable(self.path, lambda: bytes(self._lines.readline()))

    def block(self) -> list[bytes]:
        """About a body of lines; none at the end."""
        return _readable(self.path, lambda: list(self._lines.readlines(BODY)))

    @property
    def done(self) -> int:
        return self._raw.tell()


def csv_header(path: Path) -> list[str]:
    """The column names of a CSV file."""
    with Text(path) as text:
        return next(csv.reader([_csv_record(text)[1]]), [])


def _csv_record(text: Text) -> tuple[bytes, str]:
    """One whole record, which quoted line ends may spread over lines."""
    record = text.line()
    while record.count(b'"') % 2 and (line := text.line()):
        record += line
    return record, record.decode("utf-8-sig", "replace")


def csv_chunks(path: Path) -> Iterator[tuple[bytes, bytes, int, int]]:
    """(header, records, number of the first line, bytes done): cut where no quote is open, as RFC 4180 has it."""
    with Text(path) as text:
        header = _csv_record(text)[0]
        line = 1 + header.count(b"\n")
        header = header.removeprefix(_BOM)
        while block := text.block():
            chunk = b"".join(block)
            quotes = chunk.count(b'"')
            tail = []
            while quotes % 2 and (more := text.line()):
                tail.append(more)
                quotes += more.count(b'"')
            chunk += b"".join(tail)
            yield header, chunk, line, text.done
            line += chunk.count(b"\n")


def _csv_bodies(file: File) -> Iterator[Body]:
    for header, chunk, first, done in csv_chunks(file.path):
        head = header if header.endswith(b"\n") else header + b"\n"

        def lines(indexes: list[int], chunk: bytes = chunk, first: int = first) -> list[int]:
            begins = []
            reader = csv.reader(io.StringIO(chunk.decode("utf-8", "replace"), newline=""))
            line = first
            for record in reader:
                if record:  # an empty line is no record
                    begins.append(line)
                line = first + reader.line_num
            return [begins[index] for index in indexes]

        yield Body(CSV, head + chunk, first, done, lines)


def jsonl_chunks(path: Path) -> Iterator[tuple[bytes, int, int]]:
    """(lines, number of the first line, bytes done)."""
    with Text(path) as text:
        line = 1
        while block := text.block():
            chunk = b"".join(block)
            yield chunk.removeprefix(_BOM) if line == 1 else chunk, line, text.done
            line += len(block)


def _jsonl_bodies(file: File) -> Iterator[Body]:
    for chunk, first, done in jsonl_chunks(file.path):

        def lines(indexes: list[int], chunk: bytes = chunk, first: int = first) -> list[int]:
            filled = [first + number for number, line in enumerate(chunk.split(b"\n")) if line.strip()]
            return [filled[index] for index in indexes]

        yield Body(JSONL, chunk, first, done, lines)


def _arrow_bodies(file: File, cast: pa.Schema | None) -> Iterator[Body]:
    row = 1
    for batch, done in file.batches():
        for piece in pieces(batch, BODY):
            if cast is not None:
                piece = to_types(file.path, piece, cast)

            def lines(indexes: list[int], first: int = row) -> list[int]:
                return [first + index for index in indexes]

            yield Body(ARROW, stream_of([piece]), row, done, lines)
            row += piece.num_rows


def pieces(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    """A batch cut so that each piece takes about `size` bytes and has at most ROWS rows."""
    step = max(1, min(ROWS, batch.num_rows * size // max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def to_types(path: Path, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Columns that the schema names in its types, the others as they are. Raises BadFile where that would lose something."""
    columns = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        index = schema.get_field_index(field.name)
        wanted = schema.field(index).type if index >= 0 else pa.utf8() if pa.types.is_dictionary(field.type) else field.type
        timed = pa.types.is_timestamp(column.type) and pa.types.is_timestamp(wanted)
        if timed or isinstance(column.type, pa.BaseExtensionType) or pa.types.is_fixed_size_binary(column.type):
            columns.append(column)  # the service knows what times without a time zone are, and UUIDs
            continue
        try:
            if pa.types.is_decimal(column.type) and pa.types.is_floating(wanted):
                column = column.cast(pa.utf8())  # as a text it becomes the nearest float; Arrow's own cast is off by one unit at times
            columns.append(column.cast(wanted))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            reason = re.sub(r"\s+", " ", str(error))
            raise BadFile(f"{path}: column {field.name!r} is {field.type}, but the relation has {wanted}: {reason}") from error
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _parquet(path: Path) -> Iterator[tuple[pa.RecordBatch, int]]:
    source = _readable(path, lambda: pq.ParquetFile(path).iter_batches(batch_size=ROWS))
    done = 0
    while (batch := _readable(path, lambda: next(source, None))) is not None:
        done += batch.num_rows
        yield batch, done


def _arrow(path: Path) -> Iterator[tuple[pa.RecordBatch, int]]:
    with path.open("rb") as raw:
        reader = _opened(path, raw)
        if isinstance(reader, pa.RecordBatchFileReader):
            for number in range(reader.num_record_batches):
                yield _readable(path, lambda n=number: reader.get_batch(n)), raw.tell()  # type: ignore[misc]
            return
        while (batch := _readable(path, lambda: next(reader, None))) is not None:
            yield batch, raw.tell()


def _opened(path: Path, raw: IO[bytes]) -> Any:
    """A reader of either form of Arrow: the file begins with its magic, a stream does not."""
    opening = pa.ipc.open_file if raw.read(6) == b"ARROW1" else pa.ipc.open_stream
    raw.seek(0)
    return _readable(path, lambda: opening(raw))


def _readable(path: Path, read: Callable[[], T]) -> T:
    try:
        return read()
    except (pa.ArrowInvalid, EOFError, gzip.BadGzipFile) as error:
        raise BadFile(f"{path}: the file is damaged, or is not of the type that its name indicates: {error}") from error
