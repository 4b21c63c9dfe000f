"""The naive twin of `structures.event_tree`: nested loops over rows and partners."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from structures.event_tree.matching import LONELY
from tests.naive.interval_join import Interval, meet


def partners(row: Interval, others: Iterable[Interval], itself: bool) -> list[Interval]:
    """`itself`: each row is its own partner, which does not count."""
    return [] if row.key == LONELY else [one for one in others if meet(row, one) and not (itself and row.slot == one.slot)]


def emitted(rows: Mapping[int, Interval], others: Mapping[int, Interval], emits_matched: bool, itself: bool) -> set[int]:
    """Return the slots of the rows with a partner, or of those without."""
    return {slot for slot, row in rows.items() if bool(partners(row, others.values(), itself)) == emits_matched}
