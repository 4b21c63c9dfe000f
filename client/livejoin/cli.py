"""`livejoin`: finds and runs the commands, and reports their failures.

Commands that only talk to a service are modules of `livejoin.commands`. The distribution `livejoin` adds those that need the service, by
entry points of the group `livejoin.commands`.

Exit status: 0 success, 1 failure, 2 wrong usage, 130 interrupted. Any error is reported in one line on standard error that says what to do,
never as a traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution

from livejoin import __version__
from livejoin.terminal import Failure, imported, say
from livejoin.wire.wording import instead

OWN = {
    "load": "load files into a relation (Parquet, Arrow, CSV, JSON lines)",
    "view": "register a view",
    "apply": "make the definitions of a service those of a folder",
    "dump": "write the definitions of a service to a folder",
    "drop": "drop a view or a relation",
    "explain": "show the plan of a view without registering it",
    "rows": "print the rows of a view or relation",
    "query": "run one SELECT over relations and views",
    "watch": "follow the changes of a view",
    "top": "show views, rates, latencies and readers, continuously updated",
    "backup": "back up a running service to a folder on its machine",
}
SERVICE = {
    "serve": "run the service",
    "demo": "serve a real data set, replay its history, and suggest commands to try",
    "stream": "run the Kafka job of a stream.toml: topics into relations, views to topics",
    "token": "create, list and revoke access tokens",
    "restore": "create a data folder from a backup",
    "repair": "remove damaged data from a data folder and keep the rest",
    "check": "verify a data folder or a backup and recompute its views by brute force",
    "bench": "run the benchmarks",
}
_RELATION = "; `livejoin load` makes a relation from files, PUT /v1/relations/NAME makes one without rows"
ELSEWHERE = dict.fromkeys(("relation", "relations", "create"), _RELATION)


def main(argv: list[str] | None = None, added: Mapping[str, str] | None = None) -> int:
    """Run one command and return its exit status. `added`: the modules of the service's commands; by default, those of its entry points."""
    _open_what_is_closed()
    try:
        status = _run(sys.argv[1:] if argv is None else argv, _installed() if added is None else added)
        sys.stdout.flush()
        return status
    except Failure as failure:
        say(_one_line(failure))
        return failure.status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader has closed the pipe. Python would report this again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        say(f"{error.filename}: {error.strerror}" if error.filename else _one_line(error))
        return 1
    except Exception as error:
        say(f"internal error, please report it: {type(error).__name__}: {_one_line(error)}")
        return 1


def _open_what_is_closed() -> None:
    """Open standard streams that the caller has closed: otherwise the next file that the command opens would take the place of one."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))


def _installed() -> dict[str, str]:
    """Return the modules of the commands that the service's distribution adds."""
    try:
        return {one.name: one.value for one in distribution("livejoin").entry_points.select(group="livejoin.commands")}
    except PackageNotFoundError:
        return {}


def _run(argv: list[str], added: Mapping[str, str]) -> int:
    if not argv:
        raise Failure("no command given: `livejoin --help` lists the commands", 2)
    name = argv[0]
    if name in ("-h", "--help"):
        print(_overview())
        return 0
    if name == "--version":
        print(f"livejoin {__version__}")
        return 0
    if name in OWN:
        module = f"livejoin.commands.{name}"
    elif name in added:
        module = added[name]
    elif name in SERVICE:
        raise Failure(f"{name} is a command of the service, which is not installed here: install the package livejoin")
    else:
        raise Failure(f"unknown command {name!r}{ELSEWHERE.get(name) or instead(name, [*OWN, *SERVICE])} (see `livejoin --help`)", 2)
    try:
        command = imported(module)
    except ModuleNotFoundError as error:
        if name not in OWN:
            raise
        raise Failure(f"{name} needs {error.name}, which is not installed: install livejoin-client[files]") from error
    status: int = command.main(argv[1:])
    return status


def _overview() -> str:
    width = max(map(len, OWN | SERVICE))
    own, service = ("\n".join(f"  {name:{width}}  {summary}" for name, summary in commands.items()) for commands in (OWN, SERVICE))
    return f"""usage: livejoin COMMAND …

Keeps the results of joins up to date while their tables change.

Commands that talk to a running service:
{own}

Commands of the service itself (package livejoin):
{service}

See `livejoin COMMAND --help` for the options of a command."""


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__

