"""`livejoin watch`: follows a view. Each version is printed once and whole, also over broken connections.

The service tells the changes of a version and closes it with a `progress` record that carries a token; after a broken
connection an unfinished version is sent again from its beginning. So records are held back until their `progress`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import orjson

from service.client import Client, Refused, Unreachable
from service.terminal import BOLD, GREEN, PLAIN, RED, Columns, Failure, Parser, add_url, colours, connect, say

IN_MEMORY = 64 * 2**20  # bytes of an unfinished version held in memory; beyond this in a temporary file
SCREENFUL = 50  # changes whose widths are looked at before they are printed
PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)  # seconds before the next attempt to connect; the last one repeats


def main(arguments: list[str]) -> int:
    parser = Parser("watch", "Follow the changes of a view: a table on a terminal (+ and −), JSON lines in a pipe.")
    parser.add_argument("view", metavar="VIEW")
    parser.add_argument("--snapshot", action="store_true", help="print all rows first, then the changes after them")
    parser.add_argument("--since", metavar="TOKEN", help="resume from the token of an earlier progress record")
    add_url(parser)
    args = parser.parse_args(arguments)
    if args.snapshot and args.since:
        raise Failure("--snapshot and --since cannot be combined: a token resumes where a snapshot ended", 2)
    show = _Table() if sys.stdout.isatty() else _Pipe()
    with connect(args) as client:
        for version in follow(client, args.view, since=args.since, snapshot=args.snapshot):
            show.version(version)
    return 0


def follow(client: Client, view: str, *, since: str | None, snapshot: bool) -> Iterator[Iterable[bytes]]:
    """The records of one version after the other, `progress` last, without end; each version exactly once.

    Raises Refused when the first connection is refused, Failure when the following cannot go on without a gap.
    """
    start = {"since": since} if since else {"snapshot": "true"} if snapshot else {"wait": "0"}
    token: str | None = None
    attempt = 0
    while True:
        try:
            with tempfile.SpooledTemporaryFile(IN_MEMORY) as held:
                for line in client.changes(view, {"since": token} if token else start):
                    if attempt:
                        say("reconnected")
                        attempt = 0
                    record = orjson.loads(line) if b'"progress"' in line or b'"error"' in line else None
                    held.write(line + b"\n")
                    if record is not None and record["op"] == "error":
                        token = _after_error(record, token)
                        break
                    if record is not None and record["op"] == "progress":
                        held.seek(0)
                        yield held
                        held.seek(0)
                        held.truncate()
                        token = record["token"]
        except Unreachable as error:
            if token is None and attempt == 0:
                raise
            if attempt == 0:
                say(f"{error}; reconnecting, and resuming from the last token")
            time.sleep(PAUSES[min(attempt, len(PAUSES) - 1)])
            attempt += 1
        except Refused as refused:
            if token is None:
                raise
            raise Failure(f"cannot resume from the last token: {refused}; start again with --snapshot") from refused


def _after_error(record: dict[str, Any], token: str | None) -> str:
    """The token to go on from after the service closed the stream with an error. Raises Failure when there is none."""
    problem = record.get("problem") or {}
    kind = str(problem.get("type", "")).rpartition("/")[2]
    say(f"the service ended the stream: {kind}: {problem.get('detail', '')}")
    resume = record.get("token") or token
    if kind == "delta-too-large" or resume is None:
        raise Failure("the changes cannot be followed without a gap: start again with --snapshot")
    return str(resume)


class _Pipe:
    """JSON lines as the service sends them."""

    def version(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


class _Table:
    """Rows under their columns, + green and − red."""

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
