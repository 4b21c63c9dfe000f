"""The display of the demo: a live panel on a terminal, occasional lines in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from datetime import date
from typing import Any, NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from service.demo.board import Arrived, Board
from service.demo.history import VIEWS

EVERY = 4.0  # seconds between two lines in a pipe


class Scene(NamedTuple):
    """The state of the replay: the date in history, the share of all changes, and how they are sent."""

    day: date
    share: float
    road: str


class Terminal:
    """A panel that is redrawn in place."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._console = Console()
        self._live = Live(console=self._console, auto_refresh=False)

    def __enter__(self) -> Terminal:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def note(self, text: str) -> None:
        self._console.print(Text(text))

    def show(self, scene: Scene) -> None:
        head = Table.grid(padding=(0, 2))
        head.add_row(Text(scene.day.isoformat(), "bold"), ProgressBar(1.0, scene.share, width=30), Text(scene.road, "dim"))
        views = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for name, side in (("view", "left"), ("rows", "right"), ("+", "right"), ("−", "right"), ("", "left")):
            least = 5 if side == "right" else 25 if name else None  # only the description is shortened
            views.add_column(name, justify="right" if side == "right" else "left", no_wrap=True, min_width=least)
        changes = Text(no_wrap=True, overflow="ellipsis")
        with self._board.lock:
            for name, tally in self._board.tallies.items():
                figures = (f"{tally.rows:,}", f"{tally.inserted:,}", f"{tally.deleted:,}")
                views.add_row(
                    name, *(Text(figure, style) for figure, style in zip(figures, ("bold", "green", "red"), strict=True)), VIEWS[name].words
                )
            for arrived in self._board.recent:
                changes.append(f"{sign(arrived)} {arrived.view:<26} {describe(arrived.row)}\n", "green" if arrived.insert else "red")
        self._live.update(Group(Text(), head, Text(), views, Text(), changes), refresh=True)


class Lines:
    """Plain lines, for a pipe or a log."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._next = 0.0

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def note(self, text: str) -> None:
        print(text, flush=True)

    def show(self, scene: Scene) -> None:
        with self._board.lock:
            if not self._board.recent or time.monotonic() < self._next:
                return
            counts = "  ".join(f"{name} {tally.rows:,}" for name, tally in self._board.tallies.items())
            last = self._board.recent[-1]
        self._next = time.monotonic() + EVERY
        print(f"{scene.day}  {counts}  ({scene.road})\n  {sign(last)} {last.view}: {describe(last.row)}", flush=True)


def panel(board: Board) -> Terminal | Lines:
    return Terminal(board) if sys.stdout.isatty() else Lines(board)


def sign(arrived: Arrived) -> str:
    return "+" if arrived.insert else "−"


def describe(row: Mapping[str, Any]) -> str:
    """Return a row's names, and the common period."""
    names = [str(value) for column, value in row.items() if isinstance(value, str) and not column.startswith("together")]
    return f"{', '.join(names)}  {row['together_start']} to {row['together_end'] or 'now'}"
