"""`livejoin view`: registers a view and waits until it is live."""

from __future__ import annotations

from argparse import _MutuallyExclusiveGroup
from pathlib import Path
from typing import Any

import orjson

from livejoin.commands.connection import connect
from livejoin.terminal import Failure, Parser, add_url, say, text_of


def main(arguments: list[str]) -> int:
    parser = Parser("view", "Register a view and wait until it is live. Registering the same definition again has no effect.")
    parser.add_argument("name", metavar="NAME", help="the name of the view")
    parser.add_argument("--replace", action="store_true", help="give a view of this name the definition; until it is built, the view stays")
    add_definition(parser)
    add_url(parser)
    args = parser.parse_args(arguments)
    definition = read_definition(args.sql, args.file)
    with connect(args) as client:
        view = client.view(args.name, definition=definition, wait=False, replace=args.replace).wait_until_live(BuildProgress(args.name))
    plan = view["plan"]
    print(f"{view['name']} is live at version {view['version']}: {plan['class']}, by {plan['algorithm']}, {plan['guarantee']}")
    return 0


def add_definition(parser: Parser) -> _MutuallyExclusiveGroup:
    """Add `--sql` and `--file`, exactly one of which is required."""
    one = parser.add_mutually_exclusive_group(required=True)
    one.add_argument("--sql", help="the definition: a SELECT, or several with UNION and EXCEPT")
    one.add_argument("--file", type=Path, help="a file with the definition: SQL, or a JSON object")
    return one


def read_definition(sql: str | None, file: Path | None) -> dict[str, Any]:
    """Return the body of PUT /v1/views: text that begins with a brace is JSON, any other text is SQL."""
    given = (sql or "").encode("utf-8", "surrogateescape")  # invalid UTF-8 is passed on as given
    text = text_of(given, "--sql") if file is None else text_of(file.read_bytes(), str(file))
    if not text.strip():
        raise Failure("the definition is empty: give a SELECT", 2)
    if file is None or not text.lstrip().startswith("{"):
        return {"sql": text.strip().removesuffix(";")}
    try:
        definition: dict[str, Any] = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Failure(f"{file} is not JSON: {error}", 2) from error
    return definition


class BuildProgress:
    """Reports the progress of a view's build, in steps of a tenth."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._emitted = -1

    def __call__(self, progress: float) -> None:
        tenth = int(progress * 10)
        if tenth > self._emitted:
            say(f"{self._name} is being built: {tenth * 10} %")
            self._emitted = tenth
