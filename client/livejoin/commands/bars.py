"""Progress bars."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn


def bars(*more: ProgressColumn) -> Progress:
    """Bars on standard error, if it is a terminal: what is done, how much of it, and `more`."""
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %")
    return Progress(*columns, *more, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
