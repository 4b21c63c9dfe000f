"""`livejoin`: one command a module in `service.commands`; here is how they are found and how they fail.

Exit status: 0 done, 1 a failure, 2 wrong use, 130 interrupted. Whatever goes wrong is one line on standard error that
says what to do, never a traceback.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from service.terminal import Failure, say

COMMANDS = {
    "serve": "run the service",
    "demo": "serve real data, replay its history, print what to try",
    "load": "load files into a relation (Parquet, Arrow, CSV, JSON lines)",
    "view": "register a view",
    "explain": "show how a view would be kept, without registering it",
    "rows": "print the rows of a view",
    "watch": "follow the changes of a view",
    "stream": "run the pipelines of a stream.toml: from Kafka through Spark into the service",
    "check": "verify a data folder and recompute its views by brute force",
    "bench": "run the benchmarks",
}


def main(argv: list[str] | None = None) -> int:
    """Runs one command and returns its exit status."""
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
        # The reader has enough. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        say(f"{error.filename}: {error.strerror}" if error.filename else _one_line(error))
        return 1
    except Exception as error:
        say(f"an error of our own, please report it: {type(error).__name__}: {_one_line(error)}")
        return 1


def _run(argv: list[str]) -> int:
    if not argv:
        raise Failure("which command? `livejoin --help` lists them", 2)
    name = argv[0]
    if name in ("-h", "--help"):
        print(_overview())
        return 0
    if name == "--version":
        print(f"livejoin {_version()}")
        return 0
    if name not in COMMANDS:
        raise Failure(f"there is no command {name!r}: one of {', '.join(COMMANDS)} (see `livejoin --help`)", 2)
    status: int = import_module(f"service.commands.{name}").main(argv[1:])
    return status


def _overview() -> str:
    width = max(map(len, COMMANDS))
    listed = "\n".join(f"  {name:{width}}  {summary}" for name, summary in COMMANDS.items())
    what = "Keeps joins live: by overlaps, equalities, comparisons."
    return f"usage: livejoin COMMAND …\n\n{what}\n\n{listed}\n\n`livejoin COMMAND --help` tells the rest."


def _version() -> str:
    try:
        return version("livejoin")
    except PackageNotFoundError:
        return "(not installed)"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
