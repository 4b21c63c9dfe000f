"""`livejoin drop`: drops a view, or a relation that no view uses."""

from __future__ import annotations

import livejoin
from livejoin.commands.connection import connect
from livejoin.terminal import Failure, Parser, add_url
from livejoin.wire.wording import instead

_DESCRIPTION = """Drop a view, or a relation with its rows. The streams of the view's followers end. A relation that a view uses cannot be
dropped."""


def main(arguments: list[str]) -> int:
    parser = Parser("drop", _DESCRIPTION)
    parser.add_argument("kind", metavar="view|relation", choices=("view", "relation"), help="what to drop")
    parser.add_argument("name", metavar="NAME", help="the name of the view or relation")
    add_url(parser)
    args = parser.parse_args(arguments)
    with connect(args) as client:
        try:
            (client.view(args.name) if args.kind == "view" else client.relation(args.name)).drop()
        except livejoin.NotFound as error:
            raise Failure(f"there is no {args.kind} {args.name!r}{_instead(client, args.kind, args.name)}") from error
    print(f"dropped the {args.kind} {args.name}")
    return 0


def _instead(client: livejoin.Client, kind: str, name: str) -> str:
    known = client.status()
    other = "relation" if kind == "view" else "view"
    if name in known[f"{other}s"]:
        return f", but there is a {other} with this name; to drop it: `livejoin drop {other} {name}`"
    return instead(name, known[f"{kind}s"])
