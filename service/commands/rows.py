"""`livejoin rows`: the rows of a view, as a table on a terminal, as JSON lines in a pipe."""

from __future__ import annotations

import sys
from itertools import islice

import httpx
import orjson

from service.client import chunks, lines
from service.terminal import BOLD, PLAIN, Columns, Failure, Parser, add_url, colours, connect, say

SCREENFUL = 50  # rows shown on a terminal when no limit is given


def main(arguments: list[str]) -> int:
    parser = Parser("rows", "Print the rows of a view at one version: a table on a terminal, JSON lines in a pipe.")
    parser.add_argument("view", metavar="VIEW")
    parser.add_argument("--limit", type=int, metavar="N", help=f"at most N rows (default on a terminal: {SCREENFUL})")
    parser.add_argument("--overlaps", metavar="LO,HI", help="only rows whose joined intervals all overlap [LO, HI]; a side may be empty")
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="ALIAS.COLUMN=VALUE",
        help="look up by the key of one alias, or by the columns it is joined on; repeat for each column",
    )
    add_url(parser)
    args = parser.parse_args(arguments)
    params = row_params(args.limit, args.overlaps, args.where)
    terminal = sys.stdout.isatty()
    if terminal and args.limit is None:
        params["limit"] = str(SCREENFUL)
    with connect(args) as client, client.rows(args.view, params) as response:
        if terminal:
            _table(response)
        else:
            for chunk in chunks(response):
                sys.stdout.buffer.write(chunk)
                sys.stdout.buffer.flush()
    return 0


def row_params(limit: int | None, overlaps: str | None, where: list[str]) -> dict[str, str]:
    """The query parameters of GET …/rows. Raises Failure on wrong use."""
    params: dict[str, str] = {}
    if limit is not None:
        if limit < 0:
            raise Failure("--limit must not be negative", 2)
        params["limit"] = str(limit)
    if overlaps is not None:
        if overlaps.count(",") != 1:
            raise Failure(f"--overlaps takes LO,HI (either side may be empty), not {overlaps!r}", 2)
        params["overlaps"] = overlaps
    for condition in where:
        column, equals, value = condition.partition("=")
        if not equals or "." not in column:
            raise Failure(f"--where takes ALIAS.COLUMN=VALUE, not {condition!r}", 2)
        params[f"where.{column}"] = value
    return params


def _table(response: httpx.Response) -> None:
    stream = (orjson.loads(line) for line in lines(response))
    first = list(islice(stream, SCREENFUL))
    if first:
        columns = Columns(list(first[0]))
        columns.fit(first)
        name, rule = columns.head()
        print(f"{BOLD}{name}{PLAIN}" if colours(sys.stdout) else name)
        print(rule)
        count = 0
        for rows in (first, stream):
            for row in rows:
                print(columns.line(row))
                count += 1
        more = "; there are more: use --limit N, or a pipe for all rows" if "next" in response.links else ""
        say(f"{count} row{'s' if count != 1 else ''} at version {response.headers.get('Livejoin-Version')}{more}")
    else:
        none = "none of the rows" if response.headers.get("Livejoin-Empty") == "false" else "no rows"  # --limit 0
        say(f"{none} at version {response.headers.get('Livejoin-Version')}")
