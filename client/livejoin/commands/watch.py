"""`livejoin watch`: follows a view. Each version is printed once and completely, even if connections break."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import islice
from typing import Any

import orjson

import livejoin
from livejoin.commands.connection import connect
from livejoin.terminal import BOLD, GREEN, PLAIN, RED, Columns, Failure, Parser, add_url, colours

SCREENFUL = 50  # changes whose widths are measured before they are printed


def main(arguments: list[str]) -> int:
    parser = Parser("watch", "Follow the changes of a view: a table on a terminal (+ and −), JSON lines in a pipe.")
    parser.add_argument("view", metavar="VIEW", help="the view")
    parser.add_argument("--snapshot", action="store_true", help="print all rows first, then the changes after them")
    parser.add_argument("--since", metavar="TOKEN", help="resume from the token of an earlier progress record")
    add_url(parser)
    args = parser.parse_args(arguments)
    if args.snapshot and args.since:
        raise Failure("--snapshot and --since cannot be combined: a token resumes where a snapshot ended", 2)
    show = _Table() if sys.stdout.isatty() else _Pipe()
    with connect(args) as client:
        try:
            for version in client.view(args.view).follow(since=args.since, snapshot=args.snapshot, idle=True):
                show.version(version.lines())
        except (livejoin.TokenExpired, livejoin.BadToken) as error:
            raise Failure(f"cannot resume without a gap: {error}; start again with --snapshot") from error
    return 0


class _Pipe:
    """JSON lines as the service sends them."""

    def version(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


class _Table:
    """Rows in columns, + green and − red."""

    def __init__(self) -> None:
        self._columns: Columns | None = None
        self._colours = colours(sys.stdout)

    def version(self, lines: Iterable[bytes]) -> None:
        records = (orjson.loads(line) for line in lines)
        while some := list(islice(records, SCREENFUL)):
            changes = [(record["op"], {"version": record["version"]} | record["row"]) for record in some if record["op"] != "progress"]
            if changes:
                self._show(changes)
        sys.stdout.flush()

    def _show(self, changes: list[tuple[str, dict[str, Any]]]) -> None:
        rows = [row for _, row in changes]
        if self._columns is None:
            self._columns = Columns(list(rows[0]), margin="  ")
            self._columns.fit(rows)
            name, rule = self._columns.head()
            print(f"{BOLD}{name}{PLAIN}" if self._colours else name)
            print(rule)
        self._columns.fit(rows)
        for op, row in changes:
            sign, colour = ("+", GREEN) if op == "insert" else ("−", RED)
            text = self._columns.line(row, f"{sign} ")
            print(f"{colour}{text}{PLAIN}" if self._colours else text)
