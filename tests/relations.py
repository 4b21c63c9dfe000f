"""Definitions of relations, as JSON, in one line."""

from __future__ import annotations

import re
from typing import Any

BOOKINGS = "id:int64, room:string, starts:timestamp, ends:timestamp?"


def bookings(*more: str) -> dict[str, Any]:
    """Return the relation of most examples, with more columns."""
    return declared(", ".join([BOOKINGS, *more]), stay="starts ends")


def declared(described: str, key: str = "id", **intervals: str) -> dict[str, Any]:
    """Return a definition: columns as of `columns`, and intervals as `stay="starts ends"`, `stay="starts ends []"`, `moment="starts"`."""
    definition: dict[str, Any] = {"columns": columns(described), "key": re.split(", *", key)}
    if intervals:
        definition["intervals"] = {name: _interval(*ends.split()) for name, ends in intervals.items()}
    return definition


def columns(described: str) -> list[dict[str, Any]]:
    """`described`: "name:type, …", with `?` behind the type of a column that may be null."""
    return [_column(*one.split(":")) for one in re.split(r", *(?!\d)", described)]


def _column(name: str, described: str) -> dict[str, Any]:
    kind, _, size = described.rstrip("?").rstrip(")").partition("(")
    numbers = zip(("precision", "scale"), map(int, size.split(",")), strict=True) if size else ()
    return {"name": name, "type": kind, **dict(numbers), **({"nullable": True} if described.endswith("?") else {})}


def _interval(start: str, end: str = "", bounds: str = "") -> dict[str, Any]:
    if not end:
        return {"at": start}
    return {"start": start, "end": end, **({"bounds": bounds} if bounds else {})}
