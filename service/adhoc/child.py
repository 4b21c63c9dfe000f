"""The child process: it runs one query, then ends. The nursery forks it and calls `run`.

It has DuckDB, the socket, and nothing else: before it reads the query, it gives up everything that it could reach through a bug in DuckDB.
Its requests come from the service, and its data are streams that the service sends; so it only checks the text of the query.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import socket
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import duckdb
import pyarrow as pa
import pyarrow.acero  # `filter` would import it, which is impossible then
import pyarrow.dataset

from service.adhoc import frames
from service.adhoc.output_names import names_of

_NO_NEW_PRIVS = 38  # PR_SET_NO_NEW_PRIVS of prctl(2)
_BATCH = 8192  # rows of the result
_DESCRIBE = "DESCRIBE "
_FRAME = 8 << 20  # bytes of the result per frame, unless a single row is larger
_SLACK = 256 << 20  # bytes for everything except DuckDB's buffers: Python, Arrow, batches in progress

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": False,
    "temp_directory": "",
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "python_enable_replacements": False,
    "async_threads": 0,
    "errors_as_json": True,
}
_SOURCES = {"BASE_TABLE", "JOIN", "SUBQUERY", "EXPRESSION_LIST", "EMPTY", "PIVOT"}  # in FROM; other types are functions and SHOW
_KEPT = {"BIGINT", "DOUBLE", "VARCHAR", "BOOLEAN", "BLOB"}
_FINITE = "CASE WHEN isfinite({0}) THEN {0}::{1} END"  # an infinite end is null, as in relations
_CASTS = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT", "UINTEGER", "HUGEINT", "UHUGEINT"), "CAST({} AS BIGINT)"),
    **dict.fromkeys(
        ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE"), _FINITE.replace("{1}", "TIMESTAMPTZ")
    ),
    "DATE": _FINITE.replace("{1}", "DATE"),
    "TIME": "CASE WHEN {0} < '24:00' THEN {0} WHEN {0} IS NOT NULL THEN error('24:00:00 is no time of a day: cast it to VARCHAR') END",
    "UBIGINT": "CAST({} AS DECIMAL(20, 0))",
    "FLOAT": "CAST({} AS DOUBLE)",
}
_NESTED = {"list", "array", "struct", "map", "union"}


class QueryRefused(Exception):
    """The query cannot be run, or not to its end: `reason` is the name of DuckDB's exception, or one of those in `frames`."""

    def __init__(self, reason: str, message: str = "", position: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.message, self.position = reason, message, position


class Service:
    """The service as seen by DuckDB's threads, over the socket: one request at a time."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._lock = threading.Lock()
        self._scans = 0

    def scan(self, table: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table, with the columns of `schema`."""
        with self._lock:
            number, self._scans = self._scans, self._scans + 1
            self._send_frame(frames.OPEN, json.dumps({"scan": number, "table": table, "columns": schema.names}).encode())
        name = frames.NUMBER.pack(number)
        try:
            while True:
                with self._lock:
                    self._send_frame(frames.NEXT, name)
                    _, content = frames.receive(self._socket)
                if not content:
                    return
                rows = pa.BufferReader(content)
                while rows.tell() < len(content):
                    yield pa.ipc.read_record_batch(pa.ipc.read_message(rows), schema)
        except GeneratorExit:
            with self._lock:
                self._send_frame(frames.CLOSE, name)

    def answer(self, kind: int, *content: bytes | memoryview) -> None:
        with self._lock:
            self._send_frame(kind, *content)

    def _send_frame(self, kind: int, *content: bytes | memoryview) -> None:
        frames.send(self._socket, kind, *content)


class _Scanner:
    def __init__(self, rows: pa.RecordBatchReader) -> None:
        self._rows = rows

    def to_reader(self) -> pa.RecordBatchReader:
        return self._rows


class ChildTable(pyarrow.dataset.Dataset):  # type: ignore[misc]
    """A relation or view as DuckDB reads it: the columns that a plan needs, as often as it scans them."""

    def __init__(self, service: Service, number: int, schema: pa.Schema) -> None:
        self._service, self._number, self._schema = service, number, schema

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def scanner(self, columns: list[str] | None = None, filter: pyarrow.dataset.Expression | None = None, **_: Any) -> _Scanner:
        """Return a scanner. DuckDB passes the conditions that Arrow evaluates in the same way; their columns need not be in `columns`."""
        shown = self._schema.names if columns is None else columns
        read = [field for field in self._schema if field.name in shown or (filter is not None and self._reads(filter, field.name))]
        rows = self._service.scan(self._number, pa.schema(read))
        if filter is not None:
            rows = (batch for some in rows for batch in pa.Table.from_batches([some]).filter(filter).to_batches())
        schema = pa.schema([self._schema.field(name) for name in shown])
        return _Scanner(pa.RecordBatchReader.from_batches(schema, (batch.select(shown) for batch in rows)))

    def _reads(self, filter: pyarrow.dataset.Expression, name: str) -> bool:
        """Return whether the condition reads this column, which an expression does not reveal."""
        try:
            pa.schema([field for field in self._schema if field.name != name]).empty_table().filter(filter)
        except (pa.ArrowInvalid, LookupError):
            return True
        return False


def run(connected: socket.socket) -> NoReturn:
    """Receive the query from the socket, answer it, and end the process."""
    with contextlib.suppress(frames.PeerGone):
        database = _open()
        size = _give_up()
        _run(database, connected, size)
    os._exit(0)  # nothing is left to clean up


def _open() -> duckdb.DuckDBPyConnection:
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    database = duckdb.connect(":memory:", config=_SETTINGS)
    database.execute("SET TimeZone = 'UTC'")
    return database


def _give_up() -> int:
    """Give up files, sockets and privileges, whatever DuckDB would do with them; return the size of the address space so far, in bytes."""
    os.chdir("/")
    with contextlib.suppress(OSError), tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # deleted afterwards: it is empty, and nothing can be created in it
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # if the machine runs out of memory, this process is killed before the service
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    for what in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):
        resource.setrlimit(what, (0, 0))
    return pages * resource.getpagesize()


def _run(database: duckdb.DuckDBPyConnection, connected: socket.socket, size: int) -> None:
    asked = json.loads(frames.receive(connected)[1])
    service = Service(connected)
    tables = [ChildTable(service, index, pa.ipc.read_schema(_buffer(connected))) for index in range(len(asked["tables"]))]
    memory, threads, seconds = asked["memory"], asked["threads"], asked["seconds"]
    # The second line of defence: DuckDB's own limit does not cover everything that expressions allocate.
    resource.setrlimit(resource.RLIMIT_AS, (size + memory + _SLACK,) * 2)
    processor = int(seconds * threads) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (processor, processor + 1))
    try:
        database.execute(f"SET memory_limit = '{memory}B'; SET threads = {threads}")
        for name, table in zip(asked["tables"], tables, strict=True):
            database.register(name, table)
        database.execute("SET lock_configuration = true")
        _answer(service, _select(database, asked["sql"], asked["tables"]))
    except frames.PeerGone:
        raise
    except BaseException as error:
        service.answer(frames.FAILED, json.dumps(_failure(error)).encode())


def _select(database: duckdb.DuckDBPyConnection, sql: str, tables: Sequence[str]) -> duckdb.DuckDBPyRelation:
    """Return the query, bound, with columns of types that the service supports. Raises Refused, and DuckDB's exceptions."""
    with _located(sql.encode(), 0):
        statements = database.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise QueryRefused(frames.NOT_A_SELECT)
    tree = json.loads(database.execute("SELECT json_serialize_sql($1)", [sql]).fetchall()[0][0])
    if tree["error"]:
        raise QueryRefused(frames.NOT_A_SELECT)
    _require_tables(tree, tables)
    text = statements[0].query
    with _located(sql.encode(), sql.encode().find(text.encode()) - len(_DESCRIBE)):
        bound_names = [row[0] for row in database.execute(_DESCRIBE + text).fetchall()]
    names = names_of(tree["statements"][0]["node"], bound_names, lambda node: _width(database, node))
    bound = database.sql(statements[0])
    columns = [_cast(f"#{position}", type_) for position, type_ in enumerate(bound.types, 1)]
    return bound.project(", ".join(f'{column} AS "{_quoted(name)}"' for column, name in zip(columns, names, strict=True)))


def _width(database: duckdb.DuckDBPyConnection, node: dict[str, Any]) -> int:
    """Return the number of columns of a query of DuckDB's tree."""
    tree = json.dumps({"error": False, "statements": [{"node": node}]})
    text = database.execute("SELECT json_deserialize_sql($1)", [tree]).fetchall()[0][0]
    return len(database.execute(_DESCRIBE + text).fetchall())


@contextlib.contextmanager
def _located(sql: bytes, start: int) -> Iterator[None]:
    """Convert DuckDB's errors about a text that begins at byte `start` of the query to Refused, with the character."""
    try:
        yield
    except duckdb.Error as error:
        fields = _error_fields(error)
        position = int(fields["position"]) + start if fields.get("position", "").isdecimal() else -1
        where = len(sql[:position].decode(errors="replace")) if 0 <= position <= len(sql) else None
        raise QueryRefused(fields.get("error_subtype") or type(error).__name__, fields["exception_message"], where) from None


def _error_fields(error: BaseException) -> dict[str, str]:
    """Return DuckDB's error, which is JSON after the name of its type (`errors_as_json`), unless it was raised in Python."""
    text = str(error)
    try:
        fields: dict[str, str] = json.loads(text[text.index("{") :])
    except ValueError:
        fields = {}
    return fields if "exception_message" in fields else {"exception_message": text.partition(": ")[2] or text}


def _require_tables(tree: Any, tables: Sequence[str]) -> None:
    """Require that FROM, as DuckDB itself parses the text, contains only the service's tables, those of WITH, and subqueries."""
    pending, named, known = [tree], list[str](), set(tables)
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending += node
        elif isinstance(node, dict):
            pending += node.values()
            known.update(one["key"].lower() for one in node.get("cte_map", {}).get("map", ()))
            if {"type", "alias", "sample"} <= node.keys():
                is_series = node["type"] == "TABLE_FUNCTION" and node["function"]["function_name"] == "generate_series"
                if (node["type"] not in _SOURCES and not is_series) or node.get("catalog_name"):
                    raise QueryRefused(frames.SOURCE)
                if node["type"] == "BASE_TABLE":
                    named.append(".".join(filter(None, (node["schema_name"], node["table_name"]))).lower())
    if not known.issuperset(named):
        raise QueryRefused(frames.SOURCE)


def _cast(column: str, type_: Any) -> str:
    name = str(type_)
    if name in _KEPT or type_.id == "decimal":
        return column
    if type_.id in _NESTED:
        return f"CAST(to_json({column}) AS VARCHAR)"
    return _CASTS.get(name, "CAST({} AS VARCHAR)").format(column)


def _quoted(name: str) -> str:
    return name.replace('"', '""')


def _answer(service: Service, query: duckdb.DuckDBPyRelation) -> None:
    reader = query.to_arrow_reader(_BATCH)
    service.answer(frames.SCHEMA, memoryview(reader.schema.serialize()))
    for batch in reader:
        _send(service, batch)
    service.answer(frames.END)


def _send(service: Service, batch: pa.RecordBatch) -> None:
    if batch.nbytes > _FRAME and batch.num_rows > 1:
        half = batch.num_rows // 2
        _send(service, batch.slice(0, half))
        _send(service, batch.slice(half))
        return
    content = memoryview(batch.serialize())
    if len(content) > frames.LONGEST:
        raise QueryRefused(frames.TOO_LARGE)
    service.answer(frames.ROWS, content)


def _failure(error: BaseException) -> dict[str, Any]:
    if isinstance(error, MemoryError):
        error = QueryRefused(frames.TOO_LARGE)
    elif not isinstance(error, QueryRefused):
        fields, name = _error_fields(error), type(error).__name__
        if isinstance(error, duckdb.Error):
            error = QueryRefused(name, fields["exception_message"])
        elif kind := fields.get("exception_type"):  # errors while the result is read come through Arrow
            error = QueryRefused("".join(word.capitalize() for word in kind.split()) + "Exception", fields["exception_message"])
        else:
            error = QueryRefused(name)
    return {"error": error.reason, "message": error.message, "position": error.position}


def _buffer(connected: socket.socket) -> pa.Buffer:
    return pa.py_buffer(frames.receive(connected)[1])
