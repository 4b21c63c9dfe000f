"""`livejoin token`: creates, lists and revokes access tokens, in a data folder (with or without a running service) or over HTTP; ends token
mode."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from livejoin.commands.connection import connect
from livejoin.terminal import Columns, Failure, Parser, add_url, say
from service.access.access_token import SCOPES, make, new_text
from service.access.audit import append
from service.access.guard import PAUSE
from service.access.store import TOKENS, add_token, administers, end_token_mode, read_tokens, remove_token
from service.durability.folder import FOLDER_MODE, DamagedFolder, FolderInUse, reason, refuse_backup
from service.errors import Problem

_DESCRIPTION = """Create, list and revoke access tokens. The first token of a data folder puts it into token mode: from then
on, a service that uses it requires a token. Changes take effect in a running service immediately."""


def main(arguments: list[str]) -> int:
    args = _parser().parse_args(arguments)
    try:
        if args.data is not None and (getattr(args, "url", None) or getattr(args, "ca", None)):
            raise Failure("--data cannot be combined with --url or --ca: they are for a running service", 2)
        if args.data is not None:
            refuse_backup(args.data)
        status: int = args.run(args)
        return status
    except Problem as problem:
        raise Failure(str(problem), 2 if problem.type == "bad-definition" else 1) from problem
    except (FolderInUse, DamagedFolder) as error:
        raise Failure(str(error)) from error


def _parser() -> Parser:
    parser = Parser("token", _DESCRIPTION)
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=_ActionParser)
    create = _action(actions, "create", "Create a token and print it to standard output. It cannot be shown again.")
    create.add_argument("name", metavar="NAME", help="its name, which appears in the list of tokens and in the audit log")
    create.add_argument("--scope", required=True, choices=SCOPES, help="what it allows; each scope includes those before it")
    create.add_argument("--relations", metavar="A,B", help="only these relations, and no view unless --views is given; * for all")
    create.add_argument("--views", metavar="A,B", help="only these views, and no relation unless --relations is given; * for all")
    create.add_argument("--expires", metavar="TIME", help="when it expires, such as 2027-01-01T00:00:00Z (default: never)")
    create.set_defaults(run=_create)
    listed = _action(actions, "list", "List the tokens, without their texts.")
    listed.set_defaults(run=_list)
    revoke = _action(actions, "revoke", "Revoke a token. With --data, even the last one can be revoked; the folder stays in token mode.")
    revoke.add_argument("name", metavar="NAME", help="the name of the token")
    revoke.set_defaults(run=_revoke)
    for action in (create, listed, revoke):
        action.add_argument("--data", type=Path, metavar="DIR", help="the data folder (default: ask the service, with LIVEJOIN_TOKEN)")
        add_url(action)
    disable = _action(actions, "disable", "Revoke all tokens and end token mode. No service may be using the folder.")
    disable.add_argument("--data", type=Path, metavar="DIR", required=True, help="the data folder")
    disable.set_defaults(run=_disable)
    return parser


def _action(actions: argparse._SubParsersAction[_ActionParser], name: str, what: str) -> _ActionParser:
    return actions.add_parser(name, description=what, help=what)


class _ActionParser(Parser):
    """The parser of one action; argparse passes it the full name."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog.removeprefix("livejoin "), **options)


def _create(args: argparse.Namespace) -> int:
    restricted = {"relations": _names(args.relations), "views": _names(args.views), "expires": args.expires}
    if args.data is None:
        with connect(args) as client:
            text = client.create_token(args.name, args.scope, **restricted)
    else:
        text, now = new_text(), time.time()
        token = make({"name": args.name, "scope": args.scope, **restricted}, text, now)
        is_new = not args.data.exists()
        if is_new and not administers(token, now):  # a misspelt name, rather than a first start
            remedy = "for a new folder, the first token needs --scope admin, without --relations and --views"
            raise Failure(f"there is no folder {args.data}: give --data an existing data folder; {remedy}")
        with _writing(args.data):
            args.data.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
            first = add_token(args.data, token, begin=True)
            append(args.data, "create token", **token.grant())
        time.sleep(PAUSE)  # a running service has seen the change by then
        if first:
            made = "is a new data folder, in token mode" if is_new else "is now in token mode"
            say(f"{args.data} {made}: a service that uses it requires a token")
    print(text)
    return 0


def _list(args: argparse.Namespace) -> int:
    if args.data is None:
        with connect(args) as client:
            tokens = client.tokens()
    else:
        tokens = [token.to_json() for _, token in sorted(_present(args.data).items())]
    shown = Columns(["name", "scope", "relations", "views", "expires", "created"])
    rows = [{**token, "relations": " ".join(token["relations"]), "views": " ".join(token["views"])} for token in tokens]
    shown.fit(rows)
    print("\n".join([*shown.head(), *map(shown.line, rows)]))
    return 0


def _revoke(args: argparse.Namespace) -> int:
    if args.data is None:
        with connect(args) as client:
            client.revoke_token(args.name)
    else:
        _present(args.data)
        with _writing(args.data):
            append(args.data, "revoke token", **remove_token(args.data, args.name).grant())
        time.sleep(PAUSE)
    say(f"revoked the token {args.name}")
    return 0


def _disable(args: argparse.Namespace) -> int:
    folder: Path = args.data
    if not (folder / TOKENS).exists():
        raise _not_in_token_mode(folder)
    with _writing(folder):
        count = end_token_mode(folder)
        append(folder, "disable tokens")
    say(f"{folder} is no longer in token mode; {count} token{'s were' if count != 1 else ' was'} revoked")
    return 0


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Convert errors of the disk to messages that say what to do. The change itself may have been made: the audit log is written after
    it."""
    try:
        yield
    except OSError as error:
        remedy = "choose another folder, free disk space, or make the folder writable; run `livejoin token list` before you try again"
        raise Failure(f"the tokens in {folder} could not be written ({reason(error)}): {remedy}") from error


def _present(folder: Path) -> Mapping[str, Any]:
    """Return the tokens of a folder in token mode."""
    tokens = read_tokens(folder)
    if tokens is None:
        raise _not_in_token_mode(folder)
    return tokens


def _not_in_token_mode(folder: Path) -> Failure:
    if not folder.exists():
        return Failure(f"there is no folder {folder}: give --data an existing data folder")
    return Failure(f"{folder} is not in token mode: `livejoin token create` creates its first token")


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]
