"""`livejoin query`: one SELECT over relations and views, its rows as a table on a terminal, as JSON lines in a pipe."""

from __future__ import annotations

import sys

from livejoin.commands.connection import connect
from livejoin.commands.rows import show, write
from livejoin.terminal import Parser, add_url, say, text_of


def main(arguments: list[str]) -> int:
    description = "Run one SELECT over relations and views, at one version, in DuckDB's dialect"
    parser = Parser("query", f"{description}: a table on a terminal, JSON lines in a pipe.")
    parser.add_argument("sql", metavar="SQL", help='such as "SELECT count(*) FROM bookings"; - reads it from standard input')
    add_url(parser)
    args = parser.parse_args(arguments)
    given = args.sql.encode("utf-8", "surrogateescape")  # invalid UTF-8 is passed on as given
    sql = text_of(sys.stdin.buffer.read(), "standard input") if args.sql == "-" else text_of(given, "the query")
    with connect(args) as client, client.query(sql).rows() as rows:
        if sys.stdout.isatty():
            say(show(rows))
        else:
            write(rows)
    return 0
