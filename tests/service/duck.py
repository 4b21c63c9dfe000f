"""DuckDB for comparisons: one database for all tests of a process, because opening one takes 13 ms of processor time."""

from __future__ import annotations

from functools import cache

import duckdb


@cache
def _database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def connected() -> duckdb.DuckDBPyConnection:
    """Return a connection in UTC; what is registered with it is not visible to others."""
    connection = _database().cursor()
    connection.execute("SET TimeZone = 'UTC'")
    return connection
