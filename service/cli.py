"""`livejoin`: finds and runs the commands, one module each in `service.commands`, and reports their failures.

Exit status: 0 success, 1 failure, 2 wrong usage, 130 interrupted. Any error is reported in one line on standard error that says what to do,
never as a traceback.
"""

from __future__ import annotations

import os
import sys

from livejoin.wire.wording import instead, software_version
from service.terminal import Failure, imported, say

COMMANDS = {
    "serve": "run the service",
    "demo": "serve a real data set, replay its history, suggest commands to try",
    "load": "load files into a relation (Parquet, Arrow, CSV, JSON lines)",
    "view": "register a view",
    "drop": "drop a view or a relation",
    "explain": "show the plan of a view without registering it",
    "rows": "print the rows of a view or relation",
    "query": "run one SELECT over relations and views",
    "watch": "follow the changes of a view",
    "stream": "run the Kafka job of a stream.toml: topics into relations, views to topics",
    "token": "create, list and revoke access tokens",
    "backup": "back up a running service to a folder on its machine",
    "restore": "create a data folder from a backup",
    "repair": "remove damaged data from a data folder, and keep the rest",
    "check": "verify a data folder or a backup, and recompute its views by brute force",
    "top": "show views, rates, latencies and readers, live",
    "bench": "run the benchmarks",
}


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    _open_what_is_closed()
    try:
        status = _run(sys.argv[1:] if argv is None else argv)
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


def _run(argv: list[str]) -> int:
    if not argv:
        raise Failure("no command given: `livejoin --help` lists the commands", 2)
    name = argv[0]
    if name in ("-h", "--help"):
        print(_overview())
        return 0
    if name == "--version":
        print(f"livejoin {software_version()}")
        return 0
    if name not in COMMANDS:
        raise Failure(f"unknown command {name!r}{instead(name, COMMANDS)} (see `livejoin --help`)", 2)
    status: int = imported(f"service.commands.{name}").main(argv[1:])
    return status


def _overview() -> str:
    width = max(map(len, COMMANDS))
    listed = "\n".join(f"  {name:{width}}  {summary}" for name, summary in COMMANDS.items())
    what = "Keeps the results of joins up to date while their tables change."
    return f"usage: livejoin COMMAND …\n\n{what}\n\n{listed}\n\nSee `livejoin COMMAND --help` for the options of a command."


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
