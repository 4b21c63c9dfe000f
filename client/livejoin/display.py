"""Relations and views as a person wants to see them: one line, or HTML for a notebook."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from html import escape
from time import monotonic
from typing import Any, TextIO

SHOWN = 10  # rows of a notebook's table
Progress = Callable[[int, float | None], object]


def relation_words(definition: Mapping[str, Any]) -> str:
    """Columns, key and intervals: `(id int64, ends date null), key id, stay [starts, ends)`."""
    columns = ", ".join(f"{one['name']} {_type(one)}{' null' if one.get('nullable') else ''}" for one in definition["columns"])
    intervals = "".join(f", {name} {_interval(one)}" for name, one in definition.get("intervals", {}).items())
    return f"({columns}), key {', '.join(definition['key'])}{intervals}"


def _type(column: Mapping[str, Any]) -> str:
    if column["type"] == "decimal":
        return f"decimal({column['precision']},{column['scale']})"
    return f"{column['type']} in {column['zone']}" if "zone" in column else str(column["type"])


def _interval(interval: Mapping[str, Any]) -> str:
    if "at" in interval:
        return f"at {interval['at']}"
    begin, end = interval.get("bounds", "[)")
    return f"{begin}{interval['start']}, {interval['end']}{end}"


def view_words(view: Mapping[str, Any]) -> str:
    """State and plan: `live at version 42, interval-tree, strict`."""
    state = str(view["state"])
    if state == "building":
        state += f" ({view.get('progress', 0):.0%})"
    if state == "live" and "version" in view:
        state += f" at version {view['version']}"
    plan = view.get("plan", {})
    return ", ".join([state, *(str(plan[name]) for name in ("algorithm", "guarantee") if plan.get(name))])


def table_html(title: str, rows: Sequence[Mapping[str, Any]], more: bool) -> str:
    """Some rows under a title."""
    names = list(rows[0]) if rows else []
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    lines = ("".join(f"<td>{_cell(row[name])}</td>" for name in names) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    rest = "<p>…</p>" if more else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if rows else "<p>no rows</p>"
    return f"<p>{escape(title)}</p>{table}{rest}"


def _cell(value: Any) -> str:
    return "" if value is None else escape(str(value))


def message_html(shown: str, error: Exception) -> str:
    """In place of rows that could not be read."""
    return f"<p>{escape(shown)}</p><p>{escape(str(error))}</p>"


def length_of(rows: Any) -> int | None:
    """How many rows there are, where that is known before they are read: to ask DuckDB would run the query."""
    if hasattr(rows, "num_rows"):
        return int(rows.num_rows)
    is_held = isinstance(rows, Sequence) or type(rows).__module__.partition(".")[0] in ("pandas", "polars")
    return len(rows) if is_held and hasattr(rows, "__len__") else None


class Line:
    """A line on a terminal that tells how far a load is; nothing elsewhere."""

    def __init__(self, name: str, stream: TextIO | None = None) -> None:
        self._name, self._stream = name, stream or sys.stderr
        self._said = 0.0

    def __call__(self, rows: int, done: float | None) -> None:
        """rows: sent so far. done: how much of all that is, from 0 to 1, where it is known."""
        is_over = done is not None and done >= 1
        if self._stream.isatty() and (is_over or monotonic() - self._said >= 0.1):
            self._said = monotonic()
            share = "" if done is None else f" ({done:.0%})"
            print(f"\r{self._name}: {rows:,} rows{share}", end="\n" if is_over else "", file=self._stream, flush=True)


def progress_of(progress: bool | Progress, name: str) -> Progress:
    """What hears of it."""
    if callable(progress):
        return progress
    return Line(name) if progress else _nobody


def _nobody(rows: int, done: float | None) -> None: ...
