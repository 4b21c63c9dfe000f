"""`python -m service.cli`: the command line of a checkout, with the commands of this folder.

The script `livejoin` and `python -m livejoin` find them by the entry points of the installed distribution instead.
"""

from __future__ import annotations

import sys

from livejoin.cli import main as run

COMMANDS = {name: f"service.commands.{name}" for name in ("bench", "check", "demo", "repair", "restore", "serve", "stream", "token")}


def main(argv: list[str] | None = None) -> int:
    return run(argv, COMMANDS)


if __name__ == "__main__":
    sys.exit(main())
