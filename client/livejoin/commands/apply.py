"""`livejoin apply`: makes the definitions of a service those of a folder, step by step; what is there already is left alone."""

from __future__ import annotations

from pathlib import Path

import livejoin
from livejoin.commands.connection import connect
from livejoin.commands.definitions import read_folder
from livejoin.commands.plans import Plan, told
from livejoin.commands.view import BuildProgress
from livejoin.terminal import Failure, Parser, add_url, say

DIFFERENT = 3  # the exit status of --dry-run if there is something to do

_DESCRIPTION = f"""Register the relations and views that FOLDER defines in relations/NAME.json (the body of PUT /v1/relations/NAME),
views/NAME.sql (a SELECT) and views/NAME.json (JSON, or SQL with options), extend relations, and replace views. The plan is printed first.
If a definition stands in the way, such as a relation with another key, nothing is changed. If a step fails, the command says what was done;
repeat it to continue. Relations are never dropped. The exit status is 0, or 1 after a failure, or 2 for incorrect use or files, or
{DIFFERENT} if --dry-run finds something to do."""
_DONE = {"+": "created", "~": "changed", "-": "dropped"}


def main(arguments: list[str]) -> int:
    parser = Parser("apply", _DESCRIPTION)
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="the folder with the definitions; `livejoin dump` writes one")
    parser.add_argument("--dry-run", action="store_true", help=f"print the plan and change nothing; status {DIFFERENT} if it has a step")
    parser.add_argument("--prune", action="store_true", help="drop the views that FOLDER does not define")
    add_url(parser)
    args = parser.parse_args(arguments)
    wanted = read_folder(args.folder)
    if args.prune and not wanted.views:
        raise Failure(f"{args.folder} defines no views, so that --prune would drop all: to drop them, use `livejoin drop view NAME`", 2)
    with connect(args) as client:
        plan = Plan(client, wanted, args.prune)
        for step in plan.steps:
            print(f"{step.sign} {step.what}{f': {step.note}' if step.note else ''}", flush=True)
        if plan.extra:
            say(f"only in the service, and kept: {', '.join(plan.extra)}")
        for line in plan.stops:
            say(line)
        if plan.stops:
            count = len(plan.stops)
            raise Failure(f"{count} definition{'s' * (count != 1)} cannot be applied; nothing was changed")
        if args.dry_run:
            return DIFFERENT if plan.steps else 0
        _run(plan)
        for name in plan.building:
            client.view(name).wait_until_live(BuildProgress(name))
    if not plan.steps:
        print(f"nothing to do: the service has what {args.folder} defines")
    return 0


def _run(plan: Plan) -> None:
    for number, step in enumerate(plan.steps):
        try:
            step.run()
        except BaseException as error:
            before, after = ([one.what for one in some] for some in (plan.steps[:number], plan.steps[number + 1 :]))
            say(f"done: {', '.join(before) or 'nothing'}; stopped at: {step.what}; not begun: {', '.join(after) or 'nothing'}")
            if isinstance(error, livejoin.LivejoinError):
                why = told(error) if isinstance(error, livejoin.Problem) else f"{error}"
                raise Failure(f"{step.what}: {why}; to continue, repeat the command") from error
            raise
        print(f"{_DONE[step.sign]} the {step.what}", flush=True)
