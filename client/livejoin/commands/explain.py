"""`livejoin explain`: the plan of a view, without registering it."""

from __future__ import annotations

import sys

import orjson

from livejoin.commands.connection import connect
from livejoin.commands.view import add_definition, read_definition
from livejoin.terminal import Parser, add_url


def main(arguments: list[str]) -> int:
    parser = Parser("explain", "Show the plan and the guarantee of a view without registering it: text on a terminal, JSON in a pipe.")
    add_definition(parser).add_argument("given", nargs="?", metavar="SQL", help="the same as --sql SQL")
    analyze = "also read all rows of the live view with this definition, and show what this cost"
    parser.add_argument("--analyze", action="store_true", help=analyze)
    add_url(parser)
    args = parser.parse_args(arguments)
    definition = read_definition(args.sql or args.given, args.file)
    with connect(args) as client:
        answer = client.explain(definition=definition)
        if args.analyze:
            if not (live := sorted(answer.get("measured", {}))):
                parser.error("no live view has exactly this definition: register it with `livejoin view`, and analyze it then")
            answer["analyzed"] = client.view(live[0]).analyze()
    if sys.stdout.isatty():
        print(answer)
    else:
        print(orjson.dumps(answer).decode())
    return 0
