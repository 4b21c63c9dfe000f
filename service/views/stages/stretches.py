"""What the versions of a run change in rows that are stretches: netted in one call of a kernel, whatever number of versions there are.

What the changes of one version tell may cancel: a stretch that comes by one of them and goes by another is no change, nor is one that goes
with a row and comes with what replaces that, and looks alike.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from service.tables.changes import Moved
from service.tables.resolution import Indices
from service.views.deltas import Combination, Delta, deltas_of, look_alike
from service.views.shown import Shown
from structures.core.runs import Deltas
from structures.cover.netting import COMES, GOES, PAIRS, netted


class StretchCollector:
    """The sink of such a stage: all that a run tells is taken at once. `limit`: as of `Sink`."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._told: tuple[Indices, Deltas] | None = None

    def take(self, offsets: Indices, deltas: Deltas) -> None:
        """`offsets`: int64[n], of each change the number of its version, ascending."""
        self._told = offsets, deltas

    def deltas(self, first: int, moved: Moved, shown: Shown, most: int) -> list[Delta]:
        """Of the versions that change something, in order; `first`: version number 0. `moved`: rows that took the places of others;
        `shown`: how rows look; `most`: rows of a version that are kept. Cost: O(1) a stretch told, and a gather of what moved."""
        if self._told is None:
            return []
        offsets, told = self._told
        left = netted(offsets, told, *moved)
        sides = [slice(left.counts[side]) for side in (GOES, COMES)]
        at = [left.offsets[side, part] for side, part in enumerate(sides)]
        rows = [
            cast(Combination, (left.slots[side, part], left.starts[side, part], left.lasts[side, part])) for side, part in enumerate(sides)
        ]
        if left.counts[PAIRS]:
            pairs = left.pairs[:, : left.counts[PAIRS]]
            before, after = (tuple(part[some] for part in side) for side, some in zip(rows, pairs, strict=True))
            equal = pairs[:, look_alike(before, after, shown.rows, shown.text_bytes)]
            at = [np.delete(one, some) for one, some in zip(at, equal, strict=True)]
            rows = [tuple(np.delete(part, some) for part in side) for side, some in zip(rows, equal, strict=True)]
        too_large = np.unique(offsets[told.too_large]).tolist()
        return deltas_of(first, (at[GOES], rows[GOES]), (at[COMES], rows[COMES]), most, too_large)
