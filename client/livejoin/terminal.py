"""Shared by the commands: imports, failures, messages, and rows as text."""

from __future__ import annotations

import argparse
import gc
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn, TextIO

WIDEST = 48  # characters of one cell; longer text is truncated with an ellipsis
GREEN, RED, BOLD, PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[1m", "\x1b[0m"


def imported(name: str) -> ModuleType:
    """Import a module. Its objects are permanent: Python does not search them for cycles, then or later, which took a third of the time."""
    if name in sys.modules:
        return sys.modules[name]
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.freeze()
        gc.enable()


class Failure(Exception):
    """Ends the command: one line for standard error, and the exit status (1 failure, 2 wrong usage)."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


class Parser(argparse.ArgumentParser):
    """An argument parser that reports errors in one line."""

    def __init__(self, command: str, description: str, **options: Any) -> None:
        super().__init__(prog=f"livejoin {command}", description=description, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"unrecognized arguments: (--[^ =]+)", message)
        if unknown and (near := get_close_matches(unknown[1], self._option_string_actions, 1)):
            message += f"; did you mean {near[0]}?"
        raise Failure(f"{message} (see `{self.prog} --help`)", 2)


def add_url(parser: argparse.ArgumentParser) -> None:
    """Add `--url` and `--ca`; without them, the client uses LIVEJOIN_URL and LIVEJOIN_CA, otherwise the service on this machine."""
    parser.add_argument("--url", help="the URL of the service (LIVEJOIN_URL; default: http://127.0.0.1:8080)")
    parser.add_argument("--ca", metavar="FILE", help="the CA that signs the certificate of an https service, in PEM (LIVEJOIN_CA)")


def say(text: str) -> None:
    """Print a message to the user, on standard error."""
    print(f"livejoin: {text}", file=sys.stderr, flush=True)


def text_of(content: bytes, name: str) -> str:
    """Decode UTF-8, with or without a byte order mark. Raises Failure for anything else."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Failure(f"{name} is not valid UTF-8 at byte {error.start + 1}: convert it to UTF-8", 2) from error


def colours(stream: TextIO) -> bool:
    return stream.isatty() and "NO_COLOR" not in os.environ


class Columns:
    """Rows in aligned columns, printed as they arrive: widths grow with the values, without waiting for the end."""

    def __init__(self, names: Sequence[str], *, margin: str = "", widest: int = WIDEST) -> None:
        self.names = list(names)
        self._widest = widest
        self._widths = [len(cell(name, widest)) for name in self.names]
        self._margin = margin

    def head(self) -> list[str]:
        """Return the header and the line under it."""
        names = [cell(name, self._widest) for name in self.names]
        return [self._line(names, self._margin), self._margin + "  ".join("─" * width for width in self._widths)]

    def fit(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Make the columns wide enough for these rows."""
        for row in rows:
            for i, name in enumerate(self.names):
                self._widths[i] = max(self._widths[i], len(cell(row.get(name), self._widest)))

    def line(self, row: Mapping[str, Any], margin: str | None = None) -> str:
        self.fit([row])
        return self._line([cell(row.get(name), self._widest) for name in self.names], self._margin if margin is None else margin)

    def _line(self, texts: Sequence[str], margin: str) -> str:
        return (margin + "  ".join(text.ljust(width) for text, width in zip(texts, self._widths, strict=True))).rstrip()


def cell(value: Any, widest: int = WIDEST) -> str:
    """Return a value as one short line of text; null is a dot."""
    if value is None:
        return "·"
    if value is True or value is False:
        return str(value).lower()
    text = "".join(c if c.isprintable() else " " for c in str(value))
    return text if len(text) <= widest else text[: widest - 1] + "…"
