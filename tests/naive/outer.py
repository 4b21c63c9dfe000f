"""The naive twin of `structures.outer`: nested loops over rows and partners."""

from __future__ import annotations

from collections.abc import Mapping

from tests.naive.interval_join import Interval
from tests.naive.matching import partners


def pairs(rows: Mapping[int, Interval], others: Mapping[int, Interval]) -> set[tuple[int, int]]:
    return {(slot, other.slot) for slot, row in rows.items() for other in partners(row, others.values(), False)}


def told(rows: Mapping[int, Interval], others: Mapping[int, Interval], full: bool) -> set[tuple[int, int]]:
    """The rows of LEFT JOIN, or of FULL JOIN; -1: there is none."""
    found = pairs(rows, others)
    met, their = ({pair[side] for pair in found} for side in (0, 1))
    return found | {(slot, -1) for slot in rows if slot not in met} | {(-1, slot) for slot in others if full and slot not in their}
