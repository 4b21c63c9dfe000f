"""DuckDB to compare with: one database for all tests of a process, as opening one takes 13 ms of processor time."""

from __future__ import annotations

from functools import cache

import duckdb


@cache
def _database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def connected() -> duckdb.DuckDBPyConnection:
    """A connection in UTC; nobody else sees what is registered with it."""
    connection = _database().cursor()
    connection.execute("SET TimeZone = 'UTC'")
    return connection
