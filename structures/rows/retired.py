"""Slots of deleted rows: which of them may be reused.

A slot has a life [born, died). It is reusable iff died <= the published version and no pinned version p has born <= p < died. ("No pin
older than died" would let one old pin hold everything that lived after it.)

    added ──> waiting ──> reusable
                 └──────> held, under the oldest pin in its life ──(that pin gone)──> due, to be examined again

While a pin stays, the slots that it holds are not visited again: a batch costs what it deletes, not what is held. The slots that one pin
holds are in few arrays, however many small changes they come from: each is longer than the next, or longer than `_LONG`. A slot that came
to life again after it was added (a counted key) has another `died` by then: it is skipped.

Costs: add O(1); reclaim O(log n) a slot that is held, O(1) any other that became due or whose pin was released, in pieces of as many slots
as the caller asks for.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from structures.core.kernel import kernel
from structures.core.pins import holder

LIVING = 0  # `died` of living slots, and of all slots in pages that were never written
NEVER = 2**63 - 1  # `born` of free slots
_LONG = 1 << 14  # slots: longer arrays are not copied again, as there would be moments when millions are


@kernel("int64(int32[::1], int64[::1], int64[::1], int64[::1], int64[::1], int32[::1], int64[::1])")
def _sift(slots: Any, deaths: Any, pins: Any, born: Any, died: Any, reusable: Any, holders: Any) -> int:
    """Set holders[i] to the oldest pin in the life of slots[i], or -1. Returns the number of slots written into `reusable`, whose `born` is
    NEVER from now on: they are invisible, whatever is written first when they are reused. O(log pins) a slot."""
    freed = 0
    for i in range(len(slots)):
        slot = slots[i]
        holders[i] = -1
        if died[slot] != deaths[i] or born[slot] == NEVER:
            continue
        by = holder(pins, born[slot], deaths[i])
        if by >= 0:
            holders[i] = pins[by]
        else:
            born[slot] = NEVER
            reusable[freed] = slot
            freed += 1
    return freed


def _add(parts: list[tuple[np.ndarray, np.ndarray]], slots: np.ndarray, deaths: np.ndarray) -> None:
    """Add these slots. A slot is copied O(log n) times."""
    while parts and len(parts[-1][0]) <= min(len(slots), _LONG):
        more, before = parts.pop()
        slots, deaths = np.concatenate((more, slots)), np.concatenate((before, deaths))
    parts.append((slots, deaths))


class RetiredSlots:
    """The waiting and the held slots of one store; `born` and `died` are its arrays by slot."""

    def __init__(self, born: np.ndarray, died: np.ndarray) -> None:
        self._born = born
        self._died = died
        self._waiting: deque[tuple[int, np.ndarray]] = deque()
        self._held: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
        self._due: list[tuple[np.ndarray, np.ndarray]] = []  # slots whose pins have gone

    def add(self, version: int, slots: np.ndarray) -> None:
        """Add these slots (int32[n], kept), whose `died` is `version`, not below that of an earlier call."""
        self._waiting.append((version, slots))

    def reclaim(self, oldest_needed: int, pins: np.ndarray, most: int) -> np.ndarray:
        """Return int32[n], slots that are no longer visible to any reader, found among at most `most` that are visited. `pins`: int64,
        sorted."""
        if self._held:
            present = set(pins.tolist())
            for pin in [pin for pin in self._held if pin not in present]:
                self._due += self._held.pop(pin)
        due = []
        while self._due and most > 0:
            slots, deaths = self._due.pop()
            if len(slots) > most:
                self._due.append((slots[most:], deaths[most:]))
            due.append((slots[:most], deaths[:most]))
            most -= len(slots)
        while self._waiting and self._waiting[0][0] <= oldest_needed and most > 0:
            version, slots = self._waiting.popleft()
            if len(slots) > most:
                self._waiting.appendleft((version, slots[most:]))
                slots = slots[:most]
            due.append((slots, np.full(len(slots), version, np.int64)))
            most -= len(slots)
        if not due:
            return np.empty(0, np.int32)
        slots, deaths = due[0] if len(due) == 1 else (np.concatenate(column) for column in zip(*due, strict=True))
        reusable = np.empty(len(slots), np.int32)
        holders = np.empty(len(slots), np.int64)
        freed = _sift(slots, deaths, pins, self._born, self._died, reusable, holders)
        if freed < len(slots):
            for pin in np.unique(holders).tolist():
                if pin >= 0:
                    under = holders == pin
                    _add(self._held.setdefault(pin, []), slots[under], deaths[under])
        return reusable[:freed]

    def is_due(self, oldest_needed: int) -> bool:
        """Return whether another `reclaim` would have slots to visit."""
        return bool(self._due) or bool(self._waiting and self._waiting[0][0] <= oldest_needed)

    def slots(self) -> np.ndarray:
        """Return int32[n], sorted: all slots that are waiting, held, or due."""
        parts = [*self._due, *((slots, np.full(len(slots), version, np.int64)) for version, slots in self._waiting)]
        for held in self._held.values():
            parts += held
        if not parts:
            return np.empty(0, np.int32)
        slots, deaths = (np.concatenate(column) for column in zip(*parts, strict=True))
        return np.unique(slots[self._died[slots] == deaths])
