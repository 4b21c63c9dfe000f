"""How many rows a cursor asks a kernel for that tells them leaf by leaf."""

from __future__ import annotations

from structures.core.arena import B

_MANY = 2 * B * B  # rows


def within(want: int, beyond: int) -> int:
    """How many rows to ask a kernel for that may give so many more: of many, no more than wanted, since what is left over would be a small
    chunk by itself; of few, all of them at once."""
    return want - beyond if want >= _MANY else want
