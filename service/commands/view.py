"""`livejoin view`: registers a view and waits until it is live."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import orjson

from service.client import Client
from service.terminal import Failure, Parser, add_url, connect, say

LOOK_AGAIN = 0.5  # seconds between two looks at a view that is being built


def main(arguments: list[str]) -> int:
    parser = Parser("view", "Register a view and wait until it is live. Registering the same definition again has no effect.")
    parser.add_argument("name", metavar="NAME", help="the name of the view")
    add_definition(parser)
    add_url(parser)
    args = parser.parse_args(arguments)
    definition = read_definition(args.sql, args.file)
    with connect(args) as client:
        view = live(client, client.put_view(args.name, definition))
    plan = view["plan"]
    print(f"{view['name']} is live at version {view['version']}: {plan['class']}, by {plan['algorithm']}, {plan['guarantee']}")
    return 0


def add_definition(parser: Parser) -> None:
    """`--sql` or `--file`, one of them."""
    one = parser.add_mutually_exclusive_group(required=True)
    one.add_argument("--sql", help="the definition, as one SELECT")
    one.add_argument("--file", type=Path, help="a file with the definition: SQL, or a JSON object")


def read_definition(sql: str | None, file: Path | None) -> dict[str, Any]:
    """The body of PUT /v1/views: text that begins with a brace is JSON, all other text is SQL."""
    text = sql if file is None else file.read_text(encoding="utf-8")
    if text is None or not text.strip():
        raise Failure("the definition is empty: give a SELECT", 2)
    if file is None or not text.lstrip().startswith("{"):
        return {"sql": text.strip().removesuffix(";")}
    try:
        definition: dict[str, Any] = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Failure(f"{file} is not JSON: {error}", 2) from error
    return definition


def live(client: Client, view: dict[str, Any]) -> dict[str, Any]:
    """The view once it is built. Raises Failure when it cannot be."""
    name = view["name"]
    told = -1
    while view["state"] == "building":
        tenth = int(view.get("progress", 0.0) * 10)
        if tenth > told:
            say(f"{name} is being built: {tenth * 10} %")
            told = tenth
        time.sleep(LOOK_AGAIN)
        looked = client.view(name)
        if looked is None:
            raise Failure(f"{name} was dropped while it was being built: register it again")
        view = looked
    if view["state"] != "live":
        problem = view.get("problem") or {}
        raise Failure(f"{name} could not be built: {problem.get('detail', 'see the log of the service')}")
    return view
