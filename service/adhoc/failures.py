"""Converts the failure of a child to the problem that the client gets."""

from __future__ import annotations

import re
import signal
from typing import Any, NamedTuple

from service.adhoc import frames
from service.adhoc.statement import no_functions, refused
from service.errors import Problem, unsupported
from service.query.sql.names import bad_query, line_and_column

_LONGEST = 500  # characters of DuckDB's message
_JOIN = 4 << 20  # bytes of a hash table in DuckDB, at least: 16 partitions with a block of 256 KiB each
_STATE = {"InternalException", "FatalException", "TransactionException", "ConnectionException"}  # DuckDB's own errors
_RULES = ("PermissionException", "NotImplementedException")


class Limits(NamedTuple):
    """The limits of one query: bytes, threads, seconds."""

    memory: int
    threads: int
    seconds: float


def problem_of(failure: dict[str, Any], sql: str, reads: int, memory: int) -> Problem:
    """Return the problem. `failure`: the content of FAILED; `reads`: how often the query names relations and views. Raises RuntimeError,
    without details, for a bug in DuckDB or in our code."""
    error, message = str(failure["error"]), " ".join(str(failure["message"]).split())[:_LONGEST]
    if error in (frames.TOO_LARGE, "OutOfMemoryException") or "bad allocation" in message or "MemoryError" in message:
        return too_large(reads, memory)
    if error == frames.NOT_A_SELECT:
        return refused(bad_query("this is not one SELECT (and PIVOT needs the values: ON column IN (…))", 1, 1))
    if error == frames.SOURCE:
        return no_functions()
    if error in _RULES:
        return unsupported("what the query asks of DuckDB", f"no files, extensions and settings can be used ({message})")
    if error in _STATE or "Traceback" in message or not re.fullmatch("[A-Z]+[A-Za-z_]*", error):
        raise RuntimeError(f"the child of a query failed: {error}")
    if error == "COLUMN_NOT_FOUND" or "does not have a column named" in message:
        return _placed("unknown-column", message, failure, sql)
    if message.startswith(("Referenced table", "Table with name")):
        return _placed("unknown-relation", message, failure, sql)
    position = failure["position"]
    if isinstance(position, int):
        return refused(bad_query(message, *line_and_column(sql, position)))
    if "INT128" in message and "type INT64" in message:
        message += ": whole numbers of the result have 64 bits; write CAST(… AS DECIMAL(38, 0))"
    problem = Problem("bad-query", message or error)
    return refused(problem)


def too_large(reads: int, memory: int) -> Problem:
    said = f"the query needs more than {memory} bytes (--query-memory), or a row of its result more than {frames.LONGEST}"
    if 2 * reads * _JOIN > memory:
        said += f". It names relations and views {reads} times, and each join takes {_JOIN >> 20} MiB, however few rows it has: "
        said += "make several queries of it, at one version"
    return Problem("query-too-large", said)


def fate(status: int | None, reads: int, limits: Limits) -> Exception:
    """Return the reason why a child ended with this status before it answered; None: the status is unknown. `reads`: as in `problem_of`."""
    if status is None:
        unknown = "the processes of queries, that which starts them too, were ended by something else than the service"
        return Problem("internal", f"{unknown}, such as the system when memory runs out: run the query again")
    if status == -signal.SIGXCPU:
        return Problem("query-timeout", f"the query has taken {limits.seconds:g} seconds of each thread (--query-time)")
    if status == -signal.SIGKILL:
        killed = "the process of the query was killed by something else than the service, as the system does when memory runs out"
        return Problem("query-too-large", f"{killed}; a query may take {limits.memory} bytes (--query-memory)")
    if status == -signal.SIGABRT:  # raised by C++ if no memory was available
        return too_large(reads, limits.memory)
    return RuntimeError(f"the child of a query ended with status {status}")


def _placed(type_: str, message: str, failure: dict[str, Any], sql: str) -> Problem:
    if not isinstance(failure["position"], int):
        return Problem(type_, message)
    line, column = line_and_column(sql, failure["position"])
    return Problem(type_, f"{message} (line {line}, column {column})", position={"line": line, "column": column})
