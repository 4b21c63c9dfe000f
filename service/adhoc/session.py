"""One query on the service's input: its child asks for rows of relations and views at one version, and returns rows of the result.

    Session(…) -> advance() until it returns the End; `waits` tells whether the child's message is next -> close()

The child has the plan, the service has the rows: DuckDB decides which columns it reads, in which order and how often, and each of its scans
is a reader of the pinned version. A chunk is prepared while the child processes the previous one, and sent when the child asks for it, so
the service holds one chunk per scan, however large the tables are.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

import pyarrow as pa

from livejoin.wire.budget import Budget, take_arrow_stream
from livejoin.wire.kinds import SENT_TYPES
from service.adhoc import frames
from service.adhoc.conditions import conditions
from service.adhoc.failures import Limits, fate, problem_of
from service.adhoc.process import Child
from service.adhoc.statement import RELATION, QueriedTable
from service.errors import unsupported
from service.reading import narrowing
from service.reading.cursors import Readers, RowReader, open_relation_rows, open_rows

_FIRST, _LARGEST = 32 << 10, 1 << 20  # bytes of a chunk, exceeded only by the rows read last
_WIDTH = 16  # assumed bytes per row, for the number of rows to read at once
_PAUSE = 0.002  # seconds that a thread waits for the child: releasing it and taking it back for each chunk costs more
_MOST_SCANS = 256  # that a query has open: each holds a chunk


class End(NamedTuple):
    """The end of the result."""


END = End()


class _Scan:
    """A scan of the child, and its next chunk as soon as it is ready."""

    def __init__(self, reader: RowReader) -> None:
        self.reader = reader
        self.ready: list[memoryview] | None = None  # record batches; empty: there is no further chunk
        self._size, self._ended = _FIRST, False

    def prepare(self, until: float) -> bool:
        """Prepare the next chunk; return False if there was not enough time to find a row."""
        if self.ready is not None:
            return True
        parts, size = list[memoryview](), 0
        while size < self._size and not self._ended:
            rows = self.reader.read(self._size // _WIDTH)
            if rows is None:
                self._ended = True
                self.reader.close()
            elif rows.num_rows:
                parts.append(memoryview(rows.serialize()))
                size += len(parts[-1])
            if time.perf_counter() >= until:
                break
        if not parts and not self._ended:
            return False
        self.ready, self._size = parts, min(4 * self._size, _LARGEST)
        return True


class _Frame(Budget):
    """Limits the decoded size of a batch of the result."""

    def take(self, size: int) -> None:
        if size > frames.LONGEST:
            raise frames.PeerGone


class Session:
    """Used by one thread at a time, except `stop`. `version` is pinned until `close`."""

    def __init__(
        self, readers: Readers, child: Child, sql: str, tables: Sequence[QueriedTable], version: int | None, limits: Limits
    ) -> None:
        """Takes ownership of the child. `version`: a pinned one, None for the newest. Problems `snapshot-expired`, `view-building`,
        `view-failed`, `unsupported-query`; for a child that has ended, those of `fate`."""
        self._readers, self._child, self._sql, self._tables = readers, child, sql, tables
        self._reads = sum(len(table.positions) for table in tables)
        self.limits, self.fileno = limits, child.socket.fileno()
        self._scans: dict[int, _Scan] = {}
        self._wanted: _Scan | None = None  # the scan whose next chunk the child waits for
        self._columns: pa.Schema | None = None
        self._held = ExitStack()
        self.waits = True
        versions = readers.published.versions
        pin = versions.pin(version)
        self._held.callback(versions.release, pin)
        try:
            self._held.enter_context(versions.reading(pin))  # it does not expire while the query runs
            self.version, self._roots = pin.version.number, pin.version.roots
            self._ask([self._schema(index) for index in range(len(tables))])
        except BaseException as error:
            self._held.close()
            if isinstance(error, frames.PeerGone):
                raise fate(child.end(), self._reads, limits) from None
            raise

    def advance(self, until: float) -> pa.RecordBatch | End | None:
        """Process the child's requests. Returns first a batch without rows, for the columns, then the rows of the result, then END; None:
        call again (if `waits`, once the child's socket is readable). Raises the query's problem, RuntimeError for a child that has
        failed."""
        try:
            return self._advance(until)
        except frames.PeerGone:
            raise fate(self._child.end(), self._reads, self.limits) from None

    def _advance(self, until: float) -> pa.RecordBatch | End | None:
        while True:
            found = None
            if self._wanted is None:
                found = self._hear()
            else:
                self._serve(self._wanted, until)
            self.waits = self._wanted is None
            if found is not None:
                return found
            left = until - time.perf_counter()
            if left <= 0 or (self.waits and not frames.is_readable(self._child.socket, min(left, _PAUSE))):
                return None

    def stop(self) -> None:
        """End the child, from any thread: its current work fails."""
        self._child.stop()

    def close(self) -> int | None:
        """Release everything; return the child's exit status, as `Child.end`."""
        for scan in self._scans.values():
            scan.reader.close()
        self._scans.clear()
        self._held.close()
        return self._child.end()

    def _ask(self, schemas: list[pa.Schema]) -> None:
        memory, threads, seconds = self.limits
        names = [table.name for table in self._tables]
        asked = {"sql": self._sql, "tables": names, "memory": memory, "threads": threads, "seconds": seconds}
        frames.send(self._child.socket, frames.QUERY, json.dumps(asked).encode())
        for schema in schemas:
            frames.send(self._child.socket, frames.SCHEMA, memoryview(schema.serialize()))

    def _schema(self, number: int) -> pa.Schema:
        """Return the schema of a table, if it can be read. Problems as in `__init__`."""
        table = self._tables[number]
        opened = open_relation_rows if table.kind == RELATION else open_rows
        reader = opened(self._readers, table.name, version=self.version)
        reader.close()
        names: Counter[str] = Counter(name.lower() for name in reader.schema.names)
        if (same := next((name for name, count in names.items() if count > 1), None)) is not None:
            raise unsupported(f"{table.name}, whose columns {same!r} differ in case alone,", "define a view that renames one of them")
        return reader.schema

    def _open(self, number: int, columns: list[str]) -> RowReader:
        """Open a reader of what a scan of these columns can need of a table."""
        table = self._tables[number]
        if table.kind == RELATION:
            definition = self._readers.published.relation(table.name).definition
            window, key = narrowing.of_relation(definition, list(conditions(table, [column.name for column in definition.columns])))
            return open_relation_rows(self._readers, table.name, version=self.version, window=window, key=key, columns=columns)
        view = self._readers.published.view(table.name)
        root = self._roots.get(view.id)  # of the definition that it has in this version
        view = view if root is None else root.view
        window, point = narrowing.of_view(view, list(conditions(table, view.shown.schema.names)))
        return open_rows(self._readers, table.name, version=self.version, window=window, point=point, columns=columns)

    def _hear(self) -> pa.RecordBatch | End | None:
        """Receive the next frame of the child."""
        kind, content = frames.receive(self._child.socket, frames.LONGEST)
        try:
            if kind == frames.OPEN:
                self._begin(**json.loads(content))
            elif kind == frames.NEXT:
                self._wanted = self._scans[_number(content)]
            elif kind == frames.CLOSE:
                self._scans.pop(_number(content)).reader.close()
            elif kind == frames.SCHEMA:
                self._columns = _checked(pa.ipc.read_schema(pa.py_buffer(content)))
                return pa.RecordBatch.from_pylist([], self._columns)
            elif kind == frames.ROWS:
                return self._rows(content)
            elif kind == frames.END:
                return END
            elif kind == frames.FAILED:
                raise problem_of(json.loads(content), self._sql, self._reads, self.limits.memory)
            else:
                raise frames.PeerGone
        except (pa.ArrowException, LookupError, TypeError, ValueError) as error:
            raise RuntimeError("the child of a query does not keep to the protocol") from error
        return None

    def _begin(self, scan: int, table: int, columns: list[str]) -> None:
        if len(self._scans) >= _MOST_SCANS:
            raise unsupported(
                f"a query that reads relations and views more than {_MOST_SCANS} times at once",
                "read each once, in WITH name AS MATERIALIZED (SELECT …), and write the name instead, or make several queries of it",
            )
        self._scans[scan] = _Scan(self._open(table, columns))

    def _serve(self, scan: _Scan, until: float) -> None:
        """Send the chunk that the child waits for, if it can be found in time, and prepare the next one."""
        if not scan.prepare(until):
            return
        parts, scan.ready, self._wanted = scan.ready or [], None, None
        frames.send(self._child.socket, frames.ROWS, *parts)
        if parts:
            scan.prepare(until)
        else:
            self._scans = {number: one for number, one in self._scans.items() if one is not scan}

    def _rows(self, content: bytearray) -> pa.RecordBatch:
        """Return rows of the result, fully validated: the child may no longer be under DuckDB's control."""
        buffer = pa.py_buffer(content)
        take_arrow_stream(pa.BufferReader(buffer), 0, _Frame())
        batch = pa.ipc.read_record_batch(buffer, self._columns)
        batch.validate(full=True)
        return batch


def _checked(columns: pa.Schema) -> pa.Schema:
    kinds = set(SENT_TYPES.values())
    if not all(field.type in kinds or pa.types.is_decimal128(field.type) for field in columns):
        raise TypeError
    return columns


def _number(content: bytearray) -> int:
    number: int = frames.NUMBER.unpack(content)[0]
    return number
