"""TreeTracker Join as a recursion over lists, with its counters: the twin of `structures.tree_tracker`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

Entry = tuple[int, ...]
"""Values, and at last the slot."""


class Tracker:
    """`atoms`: for each in preorder, its number, variables, and position above (-1: none). All entries that are in no row are removed."""

    def __init__(self, relations: Sequence[Sequence[Entry]], atoms: Sequence[tuple[int, Sequence[int], int]]) -> None:
        self.atoms, self.rows = atoms, list[Entry]()
        self.look_ups = 0
        self.removed: set[tuple[int, Entry]] = set()
        self._groups: list[dict[Entry, list[Entry]]] = []
        for position, own, above in atoms:
            shared = [v for v in own if above >= 0 and v in atoms[above][1]]
            groups = defaultdict(list)
            for entry in relations[position]:
                groups[tuple(entry[list(own).index(v)] for v in shared)].append(entry)
            self._groups.append(groups)
        self._open(0, {}, {})

    def _open(self, q: int, values: dict[int, int], slots: dict[int, int]) -> int | None:
        """Return all rows with this beginning. Return None, or the position of a dangling entry, to which everything in between
        backtracks."""
        if q == len(self.atoms):
            self.rows.append(tuple(slots[position] for position in range(q)))
            return None
        position, own, above = self.atoms[q]
        key = tuple(values[v] for v in own if above >= 0 and v in self.atoms[above][1])
        self.look_ups += q > 0
        lived = False
        for entry in self._groups[q].get(key, []):
            if (position, entry) in self.removed:
                continue
            failed = self._open(q + 1, values | dict(zip(own, entry, strict=False)), slots | {position: entry[-1]})
            if failed is None:
                lived = True
            elif failed == q:
                self.removed.add((position, entry))
            else:
                return failed
        return None if lived else above
