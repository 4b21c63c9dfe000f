"""The number of rows that a cursor requests from a kernel that writes them leaf by leaf."""

from __future__ import annotations

from structures.core.arena import B

_MANY = 2 * B * B  # rows


def within(want: int, beyond: int) -> int:
    """The number of rows to request from a kernel that may return up to `beyond` more: if many, no more than wanted, since the rest would
    be a small chunk by itself; if few, all of them at once."""
    return want - beyond if want >= _MANY else want
