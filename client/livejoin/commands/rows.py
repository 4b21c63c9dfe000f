"""`livejoin rows`: the rows of a view or relation, as a table on a terminal, as JSON lines in a pipe."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from itertools import islice
from typing import Any

import livejoin
from livejoin.commands.connection import connect
from livejoin.terminal import BOLD, PLAIN, Columns, Failure, Parser, add_url, colours, say
from livejoin.wire.wording import instead

SCREENFUL = 50  # rows shown on a terminal when no limit is given


def main(arguments: list[str]) -> int:
    parser = Parser("rows", "Print the rows of a view or relation at one version: a table on a terminal, JSON lines in a pipe.")
    parser.add_argument("name", metavar="NAME", help="the view or relation")
    parser.add_argument("--limit", type=int, metavar="N", help=f"at most N rows (on a terminal, {SCREENFUL} by default)")
    parser.add_argument(
        "--overlaps",
        action="append",
        default=[],
        metavar="[INTERVAL=]LO,HI",
        help="only rows whose joined intervals all overlap [LO, HI]; either end may be omitted; for boxes, repeat it for each interval",
    )
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="ALIAS.COLUMN=VALUE",
        help="look up by the key of one alias, by the columns it is joined on, or by all columns of a group (group.COLUMN= for null); "
        "COLUMN=VALUE by the key of a relation; repeat for each column",
    )
    parser.add_argument(
        "--order",
        metavar="COLUMN [desc],...",
        help="with --limit, at most 10,000: the first of all rows, such as --order 'price desc, id'; the service reads every row",
    )
    add_url(parser)
    args = parser.parse_args(arguments)
    wanted = _wanted(args.limit, args.overlaps, args.where)
    terminal = sys.stdout.isatty()
    if args.order is not None:
        if args.limit is None and not terminal:
            raise Failure("--order needs --limit N", 2)
        wanted["order"] = args.order
    if terminal and args.limit is None:
        wanted["limit"] = SCREENFUL
    with connect(args) as client, ExitStack() as opened:
        rows = _opened(opened, client, args.name, wanted)
        if terminal:
            say(show(rows) + ("; there are more: use --limit N, or a pipe for all rows" if rows.cursor else ""))
        else:
            write(rows)
    return 0


def _opened(opened: ExitStack, client: livejoin.Client, name: str, wanted: dict[str, Any]) -> livejoin.Rows:
    """Open the rows of the view, or of the relation if there is no such view."""
    try:
        return opened.enter_context(client.view(name).rows(**wanted))
    except livejoin.NotFound:
        refused = None
    except livejoin.Forbidden as error:  # a token for relations only may read one of this name
        refused = error
    try:
        return opened.enter_context(client.relation(name).rows(**wanted))
    except (livejoin.NotFound, livejoin.Forbidden) as error:
        if refused is not None:
            raise refused from None
        if isinstance(error, livejoin.Forbidden):
            raise
        known = client.status()
        raise Failure(f"there is no view or relation {name!r}{instead(name, [*known['views'], *known['relations']])}") from error


def write(rows: livejoin.Rows) -> None:
    """Write JSON lines as they arrive."""
    for lines in rows.lines():
        sys.stdout.buffer.write(lines)
        sys.stdout.buffer.flush()


def _wanted(limit: int | None, overlaps: list[str], where: list[str]) -> dict[str, Any]:
    """Return the arguments for the client. Raises Failure for wrong usage."""
    wanted: dict[str, Any] = {"limit": limit}
    if limit is not None and limit < 0:
        raise Failure("--limit must not be negative", 2)
    windows = dict[str, tuple[str, ...]]()
    for text in overlaps:
        interval, _, window = text.rpartition("=")
        if window.count(",") != 1:
            raise Failure(f"--overlaps takes LO,HI (either end may be omitted), or INTERVAL=LO,HI, not {text!r}", 2)
        if interval in windows:
            raise Failure(f"--overlaps has two windows for {interval or 'all intervals'}: give each interval one window", 2)
        windows[interval] = tuple(window.split(","))
    if len(windows) > 1 and "" in windows:
        raise Failure("with several --overlaps, each must name its interval", 2)
    if windows:
        wanted["overlaps"] = windows.get("", windows)
    for condition in where:
        column, equals, value = condition.partition("=")
        if not equals or not column:
            raise Failure(f"--where takes ALIAS.COLUMN=VALUE, or COLUMN=VALUE of a relation, not {condition!r}", 2)
        is_field = column.startswith(("group.", "row."))
        wanted.setdefault("where", {})[column] = _field(value) if is_field else value
    return wanted


def _field(text: str) -> str | None:
    """Return the value of a CSV field: an empty one is null, and a text may be in double quotes."""
    if len(text) > 1 and text.startswith('"') and text.endswith('"'):
        return text[1:-1].replace('""', '"')
    return text or None


def show(answer: livejoin.Rows) -> str:
    """Print a table of the rows as they arrive; return a text with their number and version."""
    stream = iter(answer)
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
        return f"{count} row{'s' if count != 1 else ''} at version {answer.version}"
    none = "no rows" if answer.empty else "0 rows"  # --limit 0
    return f"{none} at version {answer.version}"
